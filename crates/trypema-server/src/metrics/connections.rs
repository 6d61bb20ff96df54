//! Connections.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Counter, Exposition, Kind};

/// How many there are, and why they were closed.
#[derive(Debug, Default)]
pub(crate) struct ConnectionMetrics {
    /// Those that are open.
    pub(crate) open: AtomicU64,
    /// Those that were closed at once, because all others were busy.
    pub(crate) refused: Counter,
    /// Those that were closed at once, because their peer had too many.
    pub(crate) peer_limit: Counter,
    /// Those that were closed because the memory budget was exhausted.
    pub(crate) out_of_memory: Counter,
    /// Bytes of bodies and unread answers.
    pub(crate) buffered_bytes: AtomicU64,
    /// Requests that were refused because the memory budget was exhausted.
    pub(crate) memory_refusals: Counter,
    /// Those that gave way to others.
    pub(crate) gave_way: Counter,
    /// Those that took too long.
    pub(crate) timed_out: Counter,
    /// Those that did not speak HTTP, or too much of it at once.
    pub(crate) malformed: Counter,
}

impl ConnectionMetrics {
    pub(super) fn write(&self, text: &mut Exposition) {
        text.family("trypema_connections", Kind::Gauge, "Connections that are open.");
        text.sample(&[], self.open.load(Ordering::Relaxed));
        text.family(
            "trypema_connections_closed_early_total",
            Kind::Counter,
            "Connections that the service closed, and why: all others were busy, idle ones gave way, too slow, no HTTP, too many of one peer, no memory for bodies and unread answers.",
        );
        text.sample(&[("reason", "refused")], self.refused.get());
        text.sample(&[("reason", "gave_way")], self.gave_way.get());
        text.sample(&[("reason", "timed_out")], self.timed_out.get());
        text.sample(&[("reason", "malformed")], self.malformed.get());
        text.sample(&[("reason", "peer_limit")], self.peer_limit.get());
        text.sample(&[("reason", "out_of_memory")], self.out_of_memory.get());
        let help =
            "Bytes of request bodies and unread answers, over all connections; at most max_buffered_bytes.";
        text.family("trypema_buffered_bytes", Kind::Gauge, help);
        text.sample(&[], self.buffered_bytes.load(Ordering::Relaxed));
        let help = "Requests that were refused because max_buffered_bytes was exhausted.";
        text.family("trypema_memory_refusals_total", Kind::Counter, help);
        text.sample(&[], self.memory_refusals.get());
    }
}
