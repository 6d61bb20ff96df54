//! A proxy that harms what passes through it.

mod connection;
mod fault;
mod pump;
mod rewrite;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Error, Result};
use connection::Connections;
use fault::Fault;

pub use rewrite::Rewrite;

/// A server on loopback takes a connection at once, or its queue is full and never will.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Stands between clients and a server, passing everything on until told to do harm.
///
/// A fault holds for the connections that are open and those to come, until another is chosen or
/// [`heal`](FaultProxy::heal) ends it. A request sent after the method has returned meets the fault; a reply that was
/// under way already may escape it. What does not pass is left unread or thrown away, never piled up.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    connections: Arc<Connections>,
    acceptor: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// Stands before the server at `upstream`, on a free loopback port.
    pub fn start(upstream: SocketAddr) -> Result<Self> {
        Self::rewriting(upstream, Vec::new())
    }

    /// The same, with some strings of requests replaced on their way.
    pub fn rewriting(upstream: SocketAddr, rewrites: Vec<Rewrite>) -> Result<Self> {
        if let Some(rewrite) = rewrites.iter().find(|rewrite| rewrite.from.len() != rewrite.to.len()) {
            return Err(Error::new(format!("{rewrite:?} would change the length of a request")));
        }
        let failed = || Error::during("starting a proxy");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed())?;
        let address = listener.local_addr().map_err(failed())?;
        let connections = Arc::new(Connections::rewriting(rewrites));
        let accepting = Arc::clone(&connections);
        let acceptor = thread::spawn(move || accept(&listener, upstream, &accepting));
        Ok(Self { address, connections, acceptor: Some(acceptor) })
    }

    /// The address that clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Where clients connect: `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Every reply comes this much later.
    pub fn delay(&self, by: Duration) {
        self.connections.set_fault(Fault::Delay(by));
    }

    /// Closes all open connections; new ones are not harmed by it.
    pub fn cut(&self) {
        self.connections.close_all();
    }

    /// Closes all open connections, and new ones as soon as they are made.
    pub fn refuse(&self) {
        self.connections.set_fault(Fault::Refuse);
        self.connections.close_all();
    }

    /// Requests pass, replies are thrown away, connections stay open. A healed connection still lacks the replies
    /// that were thrown away.
    pub fn drop_replies(&self) {
        self.connections.set_fault(Fault::DropReplies);
    }

    /// Requests pass; where the reply would, the connection is closed instead.
    pub fn cut_on_reply(&self) {
        self.connections.set_fault(Fault::CutOnReply);
    }

    /// Nothing passes either way and nothing is closed: half-open. Once healed, what was sent meanwhile passes.
    pub fn freeze(&self) {
        self.connections.set_fault(Fault::Freeze);
    }

    /// No fault from now on.
    pub fn heal(&self) {
        self.connections.set_fault(Fault::None);
    }

    /// How many connections clients have made, also those refused.
    pub fn accepted(&self) -> u64 {
        self.connections.accepted.load(Ordering::Relaxed)
    }

    /// Returns the number of strings that were replaced in requests.
    pub fn rewritten(&self) -> u64 {
        self.connections.rewritten.load(Ordering::Relaxed)
    }

    /// How many connections are open now.
    pub fn open(&self) -> usize {
        self.connections.open()
    }

    /// Bytes passed on to the server.
    pub fn bytes_up(&self) -> u64 {
        self.connections.bytes_up.load(Ordering::Relaxed)
    }

    /// Bytes passed on to clients.
    pub fn bytes_down(&self) -> u64 {
        self.connections.bytes_down.load(Ordering::Relaxed)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.connections.end();
        // The acceptor sees the end when it wakes, and this connection wakes it.
        let is_awake = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT).is_ok();
        if let Some(acceptor) = self.acceptor.take().filter(|_| is_awake) {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, upstream: SocketAddr, connections: &Arc<Connections>) {
    for client in listener.incoming() {
        if connections.has_ended() {
            return;
        }
        let Ok(client) = client else { continue };
        connections.accepted.fetch_add(1, Ordering::Relaxed);
        if connections.fault() == Fault::Refuse {
            continue;
        }
        // A server that is not there closes the connection, as dropping the client's does.
        if let Ok(server) = TcpStream::connect_timeout(&upstream, CONNECT_TIMEOUT) {
            let _ = connections.begin(client, server);
        }
    }
}
