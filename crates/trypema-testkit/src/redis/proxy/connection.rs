//! The open connections of a proxy, and their shared state.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::fault::Fault;
use super::pump::{Direction, Pump};
use super::rewrite::Rewrite;

/// The state that the threads of one proxy share.
#[derive(Debug, Default)]
pub(super) struct Connections {
    pub(super) accepted: AtomicU64,
    pub(super) bytes_up: AtomicU64,
    pub(super) bytes_down: AtomicU64,
    pub(super) rewritten: AtomicU64,
    /// Strings to replace in requests.
    pub(super) rewrites: Vec<Rewrite>,
    /// The number of times that delayed replies were released.
    pub(super) releases: AtomicU64,
    fault: Mutex<Fault>,
    open: Mutex<HashMap<u64, Pair>>,
    begun: AtomicU64,
    has_ended: AtomicBool,
}

/// The two ends of one connection.
#[derive(Debug)]
struct Pair {
    client: TcpStream,
    server: TcpStream,
}

impl Connections {
    pub(super) fn rewriting(rewrites: Vec<Rewrite>) -> Self {
        Self { rewrites, ..Self::default() }
    }

    pub(super) fn fault(&self) -> Fault {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_fault(&self, fault: Fault) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    pub(super) fn open(&self) -> usize {
        self.pairs().len()
    }

    /// Forwards bytes in both directions, on separate threads, until either end closes.
    pub(super) fn begin(self: &Arc<Self>, client: TcpStream, server: TcpStream) -> io::Result<()> {
        let id = self.begun.fetch_add(1, Ordering::Relaxed);
        let requests = Pump::new(Direction::Requests, client.try_clone()?, server.try_clone()?)?;
        let replies = Pump::new(Direction::Replies, server.try_clone()?, client.try_clone()?)?;
        self.pairs().insert(id, Pair { client, server });
        // The proxy may have ended, or refuse connections, since the connection to the server began.
        if self.has_ended() || self.fault() == Fault::Refuse {
            self.close(id);
        }
        for pump in [requests, replies] {
            let connections = Arc::clone(self);
            thread::spawn(move || {
                pump.run(&connections);
                connections.close(id);
            });
        }
        Ok(())
    }

    pub(super) fn close_all(&self) {
        for (_, pair) in self.pairs().drain() {
            pair.shut_down();
        }
    }

    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.close_all();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    fn close(&self, id: u64) {
        if let Some(pair) = self.pairs().remove(&id) {
            pair.shut_down();
        }
    }

    fn pairs(&self) -> MutexGuard<'_, HashMap<u64, Pair>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pair {
    /// Ends the connection for both peers, and for the pumps that hold clones of it.
    fn shut_down(&self) {
        for end in [&self.client, &self.server] {
            // This fails only if the peer has closed already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}
