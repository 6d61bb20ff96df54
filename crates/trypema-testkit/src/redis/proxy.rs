//! A proxy that injects faults.

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

/// The timeout of connecting to the server. On loopback, a connection is accepted immediately, or never if
/// the backlog is full.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A proxy between clients and a server. It forwards everything until a fault is set.
///
/// A fault applies to all open and future connections, until another one is set or
/// [`heal`](FaultProxy::heal) ends it. It affects every request that is sent after the method has returned;
/// a reply that was already on its way may still pass. Bytes that may not pass are left unread or
/// discarded, never buffered without bound.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    connections: Arc<Connections>,
    acceptor: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// Starts a proxy for the server at `upstream`, on a free loopback port.
    pub fn start(upstream: SocketAddr) -> Result<Self> {
        Self::rewriting(upstream, Vec::new())
    }

    /// Starts a proxy that also replaces strings in requests.
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

    /// Returns the address for clients.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL for clients: `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Delays every reply.
    pub fn delay(&self, by: Duration) {
        self.connections.set_fault(Fault::Delay(by));
    }

    /// Forwards the replies that a delay holds back. Later replies are delayed as before.
    pub fn release(&self) {
        self.connections.releases.fetch_add(1, Ordering::AcqRel);
    }

    /// Closes all open connections. New connections are not affected.
    pub fn cut(&self) {
        self.connections.close_all();
    }

    /// Closes all open connections, and closes new ones immediately.
    pub fn refuse(&self) {
        self.connections.set_fault(Fault::Refuse);
        self.connections.close_all();
    }

    /// Forwards requests and discards replies. Connections stay open. After [`heal`](FaultProxy::heal), a
    /// connection still lacks the discarded replies.
    pub fn drop_replies(&self) {
        self.connections.set_fault(Fault::DropReplies);
    }

    /// Forwards requests, and closes the connection instead of forwarding a reply.
    pub fn cut_on_reply(&self) {
        self.connections.set_fault(Fault::CutOnReply);
    }

    /// Forwards nothing in either direction, and closes nothing: a half-open connection. After
    /// [`heal`](FaultProxy::heal), bytes that were sent meanwhile pass.
    pub fn freeze(&self) {
        self.connections.set_fault(Fault::Freeze);
    }

    /// Ends all faults, and forwards the replies that a delay holds back.
    pub fn heal(&self) {
        self.connections.set_fault(Fault::None);
        self.release();
    }

    /// Returns the number of connections that clients have made, including refused ones.
    pub fn accepted(&self) -> u64 {
        self.connections.accepted.load(Ordering::Relaxed)
    }

    /// Returns the number of strings that were replaced in requests.
    pub fn rewritten(&self) -> u64 {
        self.connections.rewritten.load(Ordering::Relaxed)
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.connections.open()
    }

    /// Returns the number of bytes forwarded to the server.
    pub fn bytes_up(&self) -> u64 {
        self.connections.bytes_up.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes forwarded to clients.
    pub fn bytes_down(&self) -> u64 {
        self.connections.bytes_down.load(Ordering::Relaxed)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.connections.end();
        // This connection wakes the acceptor, which then sees that the proxy has ended.
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
        // If the server is unreachable, dropping the client's connection closes it.
        if let Ok(server) = TcpStream::connect_timeout(&upstream, CONNECT_TIMEOUT) {
            let _ = connections.begin(client, server);
        }
    }
}
