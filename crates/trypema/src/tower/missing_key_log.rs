//! Logs requests without a key: a misconfigured server, which responds with 500.

#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts requests without a key and logs some of them. If the server is misconfigured, every request may
/// lack a key, and the log must not grow with the traffic.
#[derive(Debug, Default)]
pub(super) struct MissingKeyLog {
    #[cfg(feature = "tracing")]
    count: AtomicU64,
}

impl MissingKeyLog {
    /// Logs the 1st, 2nd, 4th, 8th … request without a key as an error.
    #[cfg(feature = "tracing")]
    pub(super) fn log(&self, advice: &str) {
        let count = self.count.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if count.is_power_of_two() {
            tracing::error!(
                target: "trypema",
                count,
                "rate limit: responded 500, the request has no key: {advice} (logged at 1, 2, 4, 8 … occurrences)"
            );
        }
    }

    #[cfg(not(feature = "tracing"))]
    #[allow(clippy::unused_self, reason = "it is used with the feature `tracing`")]
    pub(super) fn log(&self, _: &str) {}
}
