//! Accepting connections, and serving each as a task of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use super::connection::{Order, Phase};
use super::crowd;
use super::registry::{Place, Refused, Registry};
use super::stream::{Bytes, Stream};
use super::tls::Certificates;
use crate::clock::Started;

/// Connections that the system keeps for us until they are accepted: enough for a burst of clients that come back together.
const BACKLOG: u32 = 4_096;
/// How long to wait when nothing can be accepted, mostly for lack of descriptors: trying at once would only keep a core busy.
const PAUSE: Duration = Duration::from_millis(50);
/// The connections that are accepted before other tasks get their turn. Each takes some ten microseconds, and a peer that reconnects as
/// soon as it is closed has hundreds of them waiting.
const ACCEPTS_PER_TURN: u32 = 8;
/// How often it is said that nothing can be accepted.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// How long a new connection has to say something when no more are wanted.
const LAST_MOMENT: Duration = Duration::from_millis(50);

/// Listens at `address`.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart must not wait for connections of the last run to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// What speaks on a connection: a front end.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// Talks until the client or an order ends it.
    fn talk(self: Arc<Self>, stream: Stream) -> impl Future<Output = ()> + Send;
}

/// What every connection needs.
pub(crate) struct Accepting<P> {
    pub(crate) protocol: Arc<P>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) certificates: Option<Arc<Certificates>>,
}

impl<P: Protocol> Accepting<P> {
    /// Accepts until it is dropped.
    async fn run(&self, listener: &TcpListener) {
        let mut told: Option<Started> = None;
        let mut accepted: u32 = 0;
        loop {
            self.registry.room_to_accept().await;
            match listener.accept().await {
                Ok((stream, peer)) => {
                    self.welcome(stream, peer);
                    accepted = accepted.wrapping_add(1);
                    if accepted.is_multiple_of(ACCEPTS_PER_TURN) {
                        tokio::task::yield_now().await;
                    }
                }
                Err(error) => {
                    if told.is_none_or(|told| told.ago() > TELL_AGAIN) {
                        told = Some(Started::now());
                        tracing::warn!(
                            "net: cannot accept connections ({error}); retrying; check the open-file limit"
                        );
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Serves those that the system has accepted for us already, and listens no more.
    fn run_out(&self, listener: TcpListener) {
        // Asked directly: Tokio only knows of what it was told, and that may be late.
        let Ok(listener) = listener.into_std() else { return };
        while let Ok((stream, peer)) = listener.accept() {
            if let Ok(stream) = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)) {
                self.welcome(stream, peer);
            }
        }
    }

    fn welcome(&self, stream: TcpStream, peer: SocketAddr) {
        let place = match self.registry.admit(peer) {
            Ok(place) => Arc::new(place),
            Err(Refused::PeerLimit) => return self.registry.hold_refused(stream),
            Err(Refused::Full) => return,
        };
        let crowd = self.registry.crowd_runtime();
        let stream = if place.is_crowded() { crowd.adopt(stream) } else { Ok(stream) };
        let Ok(stream) = stream else { return };
        // Answers are small and complete: nothing is gained by waiting for more.
        let _ = stream.set_nodelay(true);
        let (protocol, certificates) = (Arc::clone(&self.protocol), self.certificates.clone());
        let peer = Arc::clone(&place);
        let task = async move {
            if let Some(bytes) = begun(stream, &place, certificates.as_deref()).await {
                // On the heap, and only now: a task that waits for a first byte stays small.
                Box::pin(protocol.talk(Stream { bytes, place })).await;
            }
        };
        crowd::spawn(crowd, move || peer.is_crowded(), task);
    }
}

/// A listener, and what its connections need.
pub(crate) struct Listening<P> {
    pub(crate) listener: TcpListener,
    pub(crate) accepting: Accepting<P>,
}

impl<P: Protocol> Listening<P> {
    /// Accepts until it is dropped.
    pub(crate) async fn accept(&self) {
        self.accepting.run(&self.listener).await;
    }

    /// Serves the connections that the system has accepted already, and listens no more.
    pub(crate) fn run_out(self) {
        self.accepting.run_out(self.listener);
    }
}

/// Waits until a client says something, and agrees on keys with it; `None` if that comes to nothing.
async fn begun(stream: TcpStream, place: &Place, certificates: Option<&Certificates>) -> Option<Bytes> {
    let connection = &place.connection;
    // Until something arrives there is nothing to keep but the socket.
    tokio::select! {
        first = first_byte(&stream) => first.ok()?,
        order = connection.heard() => match order {
            Order::End => return None,
            // What came in the moment of closing is still answered.
            Order::Stay | Order::Finish => timeout(LAST_MOMENT, first_byte(&stream)).await.ok()?.ok()?,
        },
    };
    let Some(certificates) = certificates else { return Some(Bytes::Plain(stream)) };
    place.enter(Phase::Head);
    tokio::select! {
        encrypted = encrypt(certificates, stream) => encrypted,
        () = connection.ended() => None,
    }
}

/// Waits for something to read, without reading it.
async fn first_byte(stream: &TcpStream) -> io::Result<usize> {
    stream.peek(&mut [0]).await
}

async fn encrypt(certificates: &Certificates, stream: TcpStream) -> Option<Bytes> {
    match certificates.acceptor().accept(stream).await {
        Ok(encrypted) => Some(Bytes::Encrypted(Box::new(encrypted))),
        Err(error) => {
            tracing::debug!("tls: handshake failed ({error})");
            None
        }
    }
}
