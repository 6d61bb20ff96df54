//! Streams: answers whose end is not known, and which may last for hours.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::watch;

use super::connection::Connection;
use super::memory::ReservedMemory;
use super::registry::Registry;
use super::requests::RequestPhase;
use super::state::Phase;
use super::work::{Unread, Work};

/// The largest number of streams: far more than there are people who watch, and few enough that one event for each of them takes
/// milliseconds.
const MAX_STREAMS: u64 = 1_024;
/// The divisor of the part of all streams that one peer may have, unless it is a trusted proxy, which forwards those of many clients.
const PEER_SHARE: u64 = 4;
/// The divisor of the part of all connections that streams may have, because a stream that is read is not evicted.
const STREAMS_SHARE: u64 = 4;

/// The bounds and the end of all streams.
#[derive(Debug)]
pub(super) struct Streams {
    max: u64,
    /// Whether all streams shall end.
    is_ending: watch::Sender<bool>,
}

impl Streams {
    pub(super) fn new(max_connections: usize) -> Self {
        let max = (max_connections as u64 / STREAMS_SHARE).clamp(1, MAX_STREAMS);
        Self { max, is_ending: watch::Sender::new(false) }
    }

    /// Tells all streams to end.
    pub(super) fn end(&self) {
        self.is_ending.send_replace(true);
    }

    /// Waits until streams shall end.
    async fn ending(&self) {
        // The sender lives as long as the registry.
        let _ = self.is_ending.subscribe().wait_for(|is_ending| *is_ending).await;
    }
}

/// The way in which the parts of a stream reach the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// In order, through the connection's buffer, as in HTTP/1.1. A part is read once that is written.
    Buffer,
    /// Through a window of the stream's own, as in HTTP/2. A part is read once its bytes are dropped.
    Window,
}

/// A request whose answer is a stream. Dropping it ends the stream.
///
/// The front end asks for the next part only when the protocol takes it. So what is unread is bounded by two parts and the buffers of
/// the protocol.
pub struct OpenStream {
    work: Arc<Work>,
    delivery: Delivery,
    /// The number of parts whose bytes the client has not read, of those behind a window.
    unread_parts: Arc<AtomicUsize>,
    ending: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Work {
    /// Turns the request into one whose answer is a stream. Fails if there are too many streams, or the server is stopping.
    pub fn into_stream(mut self, delivery: Delivery) -> Result<OpenStream, Self> {
        let registry = Arc::clone(&self.registry);
        if !registry.begin_stream(&self.connection) {
            return Err(self);
        }
        if delivery == Delivery::Buffer {
            self.after = Phase::Answer;
        }
        self.begin_answer(RequestPhase::Streaming);
        let ending = Box::pin(async move { registry.streams.ending().await });
        Ok(OpenStream { work: Arc::new(self), delivery, unread_parts: Arc::default(), ending })
    }
}

impl OpenStream {
    /// Whether the server is stopping, and so the stream shall end. Otherwise, `context` is woken when it is.
    pub fn poll_ending(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.ending.as_mut().poll(context)
    }

    /// Returns the next part of the stream, to be sent now. Returns `None` if there is no memory for it; the stream should then end.
    pub fn part(&self, bytes: Bytes) -> Option<Bytes> {
        let reserved = self.work.try_reserve(bytes.len())?;
        match self.delivery {
            Delivery::Buffer => {
                reserved.into_unread_response(bytes.len());
                self.work.enter(RequestPhase::BufferedPart);
                Some(bytes)
            }
            Delivery::Window => {
                self.unread_parts.fetch_add(1, Ordering::AcqRel);
                self.work.enter(RequestPhase::UnreadPart);
                let (work, unread_parts) = (Arc::clone(&self.work), Arc::clone(&self.unread_parts));
                let held = UnreadPart { work, unread_parts, _reserved: reserved };
                Some(Bytes::from_owner(Unread { bytes, _held: held }))
            }
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.work.registry.metrics.streams.fetch_sub(1, Ordering::Relaxed);
        self.work.connection.peer.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A part of a stream behind the stream's own window. Its request goes on until it is dropped.
struct UnreadPart {
    work: Arc<Work>,
    unread_parts: Arc<AtomicUsize>,
    _reserved: ReservedMemory,
}

impl Drop for UnreadPart {
    fn drop(&mut self) {
        let is_last = self.unread_parts.fetch_sub(1, Ordering::AcqRel) == 1;
        // A client that reads makes progress, so the time for the next part begins now.
        self.work.enter(if is_last { RequestPhase::Streaming } else { RequestPhase::UnreadPart });
    }
}

impl Registry {
    /// Counts another stream of a connection. Returns whether there is room for it; a server that is stopping has none.
    fn begin_stream(&self, connection: &Connection) -> bool {
        if *self.streams.is_ending.borrow() {
            return false;
        }
        let is_counted = |count: &AtomicU64, max: u64| {
            let next = |open: u64| (open < max).then_some(open + 1);
            count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
        };
        let peer = &connection.peer;
        let of_peer = match self.trusted_proxies.trusts(connection.peer_address.ip()) {
            true => u64::MAX,
            false => self.streams.max.div_ceil(PEER_SHARE),
        };
        if !is_counted(&peer.streams, of_peer) {
            return false;
        }
        let has_room = is_counted(&self.metrics.streams, self.streams.max);
        if !has_room {
            peer.streams.fetch_sub(1, Ordering::Relaxed);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn streams_have_a_quarter_of_the_connections() {
        assert_eq!([1, 8, 100_000].map(|connections| Streams::new(connections).max), [1, 2, MAX_STREAMS]);
    }

    #[tokio::test]
    async fn streams_are_told_to_end_once_and_for_all() {
        let streams = Streams::new(8);
        let mut told = std::pin::pin!(streams.ending());
        assert!(told.as_mut().now_or_never().is_none());
        streams.end();
        told.await;
        streams.ending().await;
    }
}
