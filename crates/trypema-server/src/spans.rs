//! Spans of requests whose caller asks for them, sent to an OpenTelemetry collector (OTLP over HTTP, in JSON).
//!
//! Only requests whose `traceparent` is marked as sampled have one: who begins a trace decides about it, and all others cost nothing.
//! Spans wait in a bounded queue and are dropped when it is full; no request ever waits for the collector.

mod export;
mod parent;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;

pub(crate) use export::Collector;
use parent::Parent;

use crate::clock;
use crate::metrics::Counter;

/// Spans that wait to be sent: some seconds of them at the rate that anybody samples at.
const QUEUE: usize = 4_096;

/// Where spans go.
#[derive(Debug)]
pub(crate) struct Spans {
    queue: mpsc::Sender<Span>,
    dropped: Arc<Counter>,
    numbers: AtomicU64,
    random: RandomState,
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Begun {
    parent: Parent,
    started: Duration,
}

/// A request that was answered.
#[derive(Debug)]
struct Span {
    parent: Parent,
    id: u64,
    route: &'static str,
    status: StatusCode,
    started: Duration,
    ended: Duration,
}

impl Spans {
    /// Where to put spans, and what sends them, which has to be polled.
    pub(crate) fn to(collector: Collector, dropped: Arc<Counter>) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let spans = Self {
            queue,
            dropped: Arc::clone(&dropped),
            numbers: AtomicU64::new(0),
            random: RandomState::new(),
        };
        (spans, collector.send_all(waiting, dropped))
    }

    /// Begins a span, if the caller asks for one.
    pub(crate) fn begin(&self, headers: &HeaderMap) -> Option<Begun> {
        let parent = Parent::read(headers)?;
        Some(Begun { parent, started: clock::since_epoch() })
    }

    /// Ends a span.
    pub(crate) fn end(&self, begun: Begun, route: &'static str, status: StatusCode) {
        let Begun { parent, started } = begun;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        // Zero is no id.
        let id = self.random.hash_one(number).max(1);
        let span = Span { parent, id, route, status, started, ended: clock::since_epoch() };
        if self.queue.try_send(span).is_err() {
            self.dropped.add_one();
        }
    }
}
