//! Metrics of connections.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Counter, Exposition, MetricType};

/// The number of connections, and of those that the server closed, by reason.
#[derive(Debug, Default)]
pub(crate) struct ConnectionMetrics {
    /// Connections that are open.
    pub(crate) open: AtomicU64,
    /// Responses that are streams, and have not ended.
    pub(crate) streams: AtomicU64,
    /// Connections that were refused because no existing connection could be evicted.
    pub(crate) refused: Counter,
    /// Connections that were refused because their peer had `max_connections_per_peer` open.
    pub(crate) peer_limit: Counter,
    /// Connections that were closed because the memory budget was exhausted.
    pub(crate) out_of_memory: Counter,
    /// The bytes of request bodies and unread responses.
    pub(crate) buffered_bytes: AtomicU64,
    /// Requests that were refused because the memory budget was exhausted.
    pub(crate) memory_refusals: Counter,
    /// Connections that were evicted to make room for new ones.
    pub(crate) evicted: Counter,
    /// Connections that exceeded a timeout.
    pub(crate) timed_out: Counter,
    /// Connections that sent malformed HTTP, or a head larger than `max_header_bytes`.
    pub(crate) malformed: Counter,
}

impl ConnectionMetrics {
    pub(super) fn write(&self, text: &mut Exposition) {
        text.family("trypema_connections", MetricType::Gauge, "Open connections.");
        text.sample(&[], self.open.load(Ordering::Relaxed));
        text.family(
            "trypema_streams",
            MetricType::Gauge,
            "Open streams: responses that last until either side ends them.",
        );
        text.sample(&[], self.streams.load(Ordering::Relaxed));
        text.family(
            "trypema_connections_closed_early_total",
            MetricType::Counter,
            "Connections closed by the server. reason: refused (no other could be evicted), evicted (closed for a new one), timed_out, malformed (not HTTP), peer_limit, out_of_memory.",
        );
        text.sample(&[("reason", "refused")], self.refused.get());
        text.sample(&[("reason", "evicted")], self.evicted.get());
        text.sample(&[("reason", "timed_out")], self.timed_out.get());
        text.sample(&[("reason", "malformed")], self.malformed.get());
        text.sample(&[("reason", "peer_limit")], self.peer_limit.get());
        text.sample(&[("reason", "out_of_memory")], self.out_of_memory.get());
        let help =
            "Bytes of request bodies and unread responses, over all connections; at most max_buffered_bytes.";
        text.family("trypema_buffered_bytes", MetricType::Gauge, help);
        text.sample(&[], self.buffered_bytes.load(Ordering::Relaxed));
        let help = "Requests that were refused because max_buffered_bytes was exhausted.";
        text.family("trypema_memory_refusals_total", MetricType::Counter, help);
        text.sample(&[], self.memory_refusals.get());
    }
}
