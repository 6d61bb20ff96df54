//! Spans of sampled requests, sent to an OpenTelemetry collector (OTLP over HTTP, JSON).
//!
//! Only a request whose `traceparent` has the sampled flag gets a span. The caller that starts a trace
//! makes the sampling decision, and all other requests cost nothing. Spans wait in a bounded queue, and are
//! dropped when it is full; no request waits for the collector.

mod export;
mod parent;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

pub(crate) use export::Collector;
use parent::Parent;

use crate::clock;
use crate::metrics::Counter;

/// The capacity of the queue: a few seconds of spans at usual sampling rates.
const QUEUE: usize = 4_096;

/// The sending side of the span queue.
#[derive(Debug)]
pub(crate) struct Spans {
    queue: mpsc::Sender<Span>,
    dropped: Arc<Counter>,
    numbers: AtomicU64,
    random: RandomState,
}

/// A span that has begun: its request is being answered.
#[derive(Debug)]
pub(crate) struct ActiveSpan {
    parent: Parent,
    started: Duration,
}

/// A finished span.
#[derive(Debug)]
struct Span {
    parent: Parent,
    id: u64,
    route: &'static str,
    status: u16,
    started: Duration,
    ended: Duration,
}

impl Spans {
    /// Returns the queue for spans, and the future that sends them to `collector`. The caller has to spawn
    /// that future.
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

    /// Begins a span if the request's `traceparent` is sampled.
    pub(crate) fn begin(&self, traceparent: &str) -> Option<ActiveSpan> {
        let parent = Parent::read(traceparent)?;
        Some(ActiveSpan { parent, started: clock::since_epoch() })
    }

    /// Ends a span and queues it.
    pub(crate) fn end(&self, active: ActiveSpan, route: &'static str, status: u16) {
        let ActiveSpan { parent, started } = active;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        // 0 is not a valid span id.
        let id = self.random.hash_one(number).max(1);
        let span = Span { parent, id, route, status, started, ended: clock::since_epoch() };
        if self.queue.try_send(span).is_err() {
            self.dropped.add_one();
        }
    }
}
