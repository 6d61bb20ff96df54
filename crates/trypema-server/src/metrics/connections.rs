//! Metrics of connections.

use std::sync::atomic::AtomicU64;

use super::{Counter, metrics};

metrics! {
    /// The number of connections, and of those that the server closed, by reason.
    ConnectionMetrics {
        "trypema_connections", "Open connections." { open: AtomicU64 }
        "trypema_connections_closed_early_total",
        "Connections closed by the server. reason: refused (no other could be evicted), evicted (closed for a new one), timed_out, malformed (not HTTP), peer_limit, out_of_memory.",
        by "reason" {
            /// Connections that were refused because no existing connection could be evicted.
            refused: Counter,
            /// Connections that were evicted to make room for new ones.
            evicted: Counter,
            /// Connections that exceeded a timeout.
            timed_out: Counter,
            /// Connections that sent malformed HTTP, or a head larger than `max_header_bytes`.
            malformed: Counter,
            /// Connections that were refused because their peer had `max_connections_per_peer` open.
            peer_limit: Counter,
            /// Connections that were closed because the memory budget was exhausted.
            out_of_memory: Counter,
        }
        "trypema_buffered_bytes",
        "Bytes of request bodies and unread responses, over all connections; at most max_buffered_bytes." {
            buffered_bytes: AtomicU64
        }
        "trypema_memory_refusals_total", "Requests that were refused because max_buffered_bytes was exhausted." {
            memory_refusals: Counter
        }
    }
}
