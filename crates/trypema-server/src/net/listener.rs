//! Accepts connections, and serves each one in a task of its own.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use super::connection::Instruction;
use super::crowd;
use super::registry::{AdmitError, ConnectionSlot, Registry};
use super::stream::{MaybeTlsStream, Stream};
use super::tls::Certificates;
use crate::clock::Started;

/// The number of connections that the kernel queues until the server accepts them: enough for a burst of clients that reconnect
/// together.
const BACKLOG: u32 = 4_096;
/// The delay before the server accepts again after an error, which is mostly a lack of descriptors. Without it, the loop would keep a
/// core busy.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// The number of connections that are accepted before other tasks get their turn. Each takes some ten microseconds, and a peer that
/// reconnects as soon as it is closed has hundreds of them waiting.
const ACCEPTS_PER_YIELD: u32 = 8;
/// The minimum interval between two warnings that connections cannot be accepted.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// The time in which a new connection must send its first byte while the server shuts down.
const SHUTDOWN_FIRST_BYTE_TIMEOUT: Duration = Duration::from_millis(50);

/// Listens at `address`, and returns the address with its port.
pub(crate) fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart must not wait for connections of the last run to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// A front end's task for one connection.
pub type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The protocol of a front end.
pub trait Protocol: Send + Sync {
    /// Serves one connection until its client or an [`Instruction`] closes it.
    fn serve(self: Arc<Self>, stream: Stream) -> Serving;
}

/// A listening socket, and everything that the tasks of its connections share.
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) acceptor: Acceptor,
}

/// Spawns the tasks of connections.
pub(crate) struct Acceptor {
    pub(crate) protocol: Arc<dyn Protocol>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) certificates: Option<Arc<Certificates>>,
}

impl Listener {
    /// Accepts connections until the future is dropped.
    pub(crate) async fn accept(&self) {
        let mut last_warning: Option<Started> = None;
        let mut accepted: u32 = 0;
        loop {
            self.acceptor.registry.wait_for_capacity().await;
            match self.socket.accept().await {
                Ok((stream, peer)) => {
                    self.acceptor.spawn_connection(stream, peer);
                    accepted = accepted.wrapping_add(1);
                    if accepted.is_multiple_of(ACCEPTS_PER_YIELD) {
                        tokio::task::yield_now().await;
                    }
                }
                Err(error) => {
                    if last_warning.is_none_or(|warning| warning.ago() > WARNING_INTERVAL) {
                        last_warning = Some(Started::now());
                        tracing::warn!(
                            "net: cannot accept connections ({error}); retrying every {} ms; check the open-file limit \
                             (`ulimit -n` or LimitNOFILE=)",
                            ACCEPT_RETRY_DELAY.as_millis()
                        );
                    }
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    /// Serves the connections that the kernel has already accepted, then closes the socket.
    pub(crate) fn drain_backlog(self) {
        // Calls `accept` of the standard library, because Tokio may not have polled the socket's readiness yet.
        let Ok(socket) = self.socket.into_std() else { return };
        while let Ok((stream, peer)) = socket.accept() {
            if let Ok(stream) = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)) {
                self.acceptor.spawn_connection(stream, peer);
            }
        }
    }
}

impl Acceptor {
    /// Admits a connection, and spawns the task that serves it.
    fn spawn_connection(&self, stream: TcpStream, peer_address: SocketAddr) {
        let slot = match self.registry.admit(peer_address) {
            Ok(slot) => Arc::new(slot),
            Err(AdmitError::PeerLimit) => return self.registry.hold_refused(stream),
            Err(AdmitError::Full) => return,
        };
        let crowd = Arc::clone(&self.registry.crowd);
        let stream = if slot.is_crowded() { crowd.register(stream) } else { Ok(stream) };
        let Ok(stream) = stream else { return };
        // Responses are small and written at once, so Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        let (protocol, certificates) = (Arc::clone(&self.protocol), self.certificates.clone());
        let peer_slot = Arc::clone(&slot);
        let task = async move {
            if let Some(inner) = establish(stream, &slot, certificates.as_deref()).await {
                // Its future is boxed only now, so that a task which waits for the first byte stays small.
                protocol.serve(Stream::new(inner, slot)).await;
            }
        };
        crowd::spawn(crowd, move || peer_slot.is_crowded(), task);
    }
}

/// Waits for the first byte of a client, and completes the TLS handshake if TLS is configured. Returns `None` if the connection closes
/// before that.
async fn establish(
    stream: TcpStream,
    slot: &ConnectionSlot,
    certificates: Option<&Certificates>,
) -> Option<MaybeTlsStream> {
    let connection = &slot.connection;
    // Until the first byte arrives, the connection needs no memory except its socket.
    tokio::select! {
        first_byte = wait_for_first_byte(&stream) => first_byte.ok()?,
        instruction = connection.next_instruction() => match instruction {
            Instruction::Close => return None,
            // A request that arrives at the moment of shutdown still gets its response.
            Instruction::Continue | Instruction::Finish => {
                timeout(SHUTDOWN_FIRST_BYTE_TIMEOUT, wait_for_first_byte(&stream)).await.ok()?.ok()?
            }
        },
    };
    let Some(certificates) = certificates else { return Some(MaybeTlsStream::Plain(stream)) };
    slot.begin_head();
    tokio::select! {
        stream = tls_handshake(certificates, stream) => stream,
        () = connection.closed() => None,
    }
}

/// Waits until the socket has a byte to read, without reading it.
async fn wait_for_first_byte(stream: &TcpStream) -> io::Result<usize> {
    stream.peek(&mut [0]).await
}

async fn tls_handshake(certificates: &Certificates, stream: TcpStream) -> Option<MaybeTlsStream> {
    match certificates.acceptor().accept(stream).await {
        Ok(stream) => Some(MaybeTlsStream::Tls(Box::new(stream))),
        Err(error) => {
            tracing::debug!("tls: handshake failed ({error}); closing the connection");
            None
        }
    }
}
