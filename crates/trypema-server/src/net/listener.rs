//! Accepting connections, and serving each as a task of its own.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use super::connection::{Order, Phase};
use super::registry::{Place, Registry};
use super::stream::{Bytes, Stream};
use super::tls::Certificates;
use crate::clock::Started;
use crate::front::http::Front;

/// Connections that the system keeps for us until they are accepted: enough for a burst of clients that come back together.
const BACKLOG: u32 = 4_096;
/// How long to wait when nothing can be accepted, mostly for lack of descriptors: trying at once would only keep a core busy.
const PAUSE: Duration = Duration::from_millis(50);

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

/// What every connection needs.
#[derive(Clone)]
pub(crate) struct Accepting {
    pub(crate) front: Arc<Front>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) certificates: Option<Arc<Certificates>>,
    pub(crate) header_bytes: usize,
}

impl Accepting {
    /// Accepts until it is dropped.
    pub(crate) async fn run(&self, listener: &TcpListener) {
        let mut told: Option<Started> = None;
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.welcome(stream, peer),
                Err(error) => {
                    if told.is_none_or(|told| told.ago() > TELL_AGAIN) {
                        told = Some(Started::now());
                        tracing::warn!(%error, "connections cannot be accepted");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Serves those that the system has accepted for us already.
    pub(crate) async fn run_out(&self, listener: &TcpListener) {
        while let Ok(Ok((stream, peer))) = timeout(Duration::ZERO, listener.accept()).await {
            self.welcome(stream, peer);
        }
    }

    fn welcome(&self, stream: TcpStream, peer: SocketAddr) {
        let Some(place) = self.registry.admit(peer) else { return };
        // Answers are small and complete: nothing is gained by waiting for more.
        let _ = stream.set_nodelay(true);
        let accepting = self.clone();
        tokio::spawn(async move { accepting.serve(stream, Arc::new(place)).await });
    }

    async fn serve(self, stream: TcpStream, place: Arc<Place>) {
        let connection = Arc::clone(&place.connection);
        // Until something arrives there is nothing to keep but the socket.
        tokio::select! {
            first = first_byte(&stream) => if first.is_err() { return },
            order = connection.heard() => match order {
                Order::End => return,
                // What came in the moment of closing is still answered.
                Order::Stay | Order::Finish => match timeout(LAST_MOMENT, first_byte(&stream)).await {
                    Ok(Ok(_)) => {}
                    _ => return,
                },
            },
        }
        let bytes = match &self.certificates {
            None => Bytes::Plain(stream),
            Some(certificates) => {
                place.enter(Phase::Head);
                tokio::select! {
                    encrypted = encrypt(certificates, stream) => match encrypted {
                        Some(encrypted) => encrypted,
                        None => return,
                    },
                    () = connection.ended() => return,
                }
            }
        };
        // On the heap, and only now: a task that waits for a first byte stays small.
        Box::pin(self.converse(bytes, place)).await;
    }

    async fn converse(self, bytes: Bytes, place: Arc<Place>) {
        let connection = Arc::clone(&place.connection);
        let service = {
            let (front, place) = (self.front, Arc::clone(&place));
            hyper::service::service_fn(move |request| {
                let (front, place) = (Arc::clone(&front), Arc::clone(&place));
                async move { Ok::<_, Infallible>(front.receive(request, &place).await) }
            })
        };
        let mut order = connection.order();
        let mut talking = pin!(
            http1::Builder::new()
                .max_buf_size(self.header_bytes)
                .header_read_timeout(None)
                // A client that has said all it wants to say is still answered.
                .half_close(true)
                // Told to finish before it has read anything, hyper would not read at all.
                .keep_alive(order == Order::Stay)
                .serve_connection(TokioIo::new(Stream { bytes, place }), service)
        );
        let ended = loop {
            if order == Order::End {
                return;
            }
            tokio::select! {
                biased;
                ended = talking.as_mut() => break ended,
                heard = connection.heard() => order = heard,
            }
            if order == Order::Finish {
                talking.as_mut().graceful_shutdown();
            }
        };
        if let Err(error) = ended {
            if error.is_parse() {
                self.registry.note_malformed();
            }
            tracing::debug!(%error, "a connection ended early");
        }
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
            tracing::debug!(%error, "a handshake failed");
            None
        }
    }
}
