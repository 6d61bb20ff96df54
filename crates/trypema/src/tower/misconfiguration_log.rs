//! Logs requests that show that the server is misconfigured.

#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts such requests and logs the 1st, 2nd, 4th, 8th … of each kind: every request may be one, and the log
/// must not grow with the traffic.
#[derive(Debug, Default)]
pub(super) struct MisconfigurationLog {
    #[cfg(feature = "tracing")]
    missing_keys: AtomicU64,
    #[cfg(feature = "tracing")]
    skipped_rules: AtomicU64,
}

#[cfg(feature = "tracing")]
impl MisconfigurationLog {
    /// Logs a request without a key, to which the server responds with 500.
    pub(super) fn missing_key(&self, advice: &str) {
        if let Some(count) = next(&self.missing_keys) {
            tracing::error!(
                target: "trypema",
                count,
                "rate limit: responded 500, the request has no key: {advice} (logged at 1, 2, 4, 8 … occurrences)"
            );
        }
    }

    /// Logs a request to which a concurrency rule applies, in a layer that cannot enforce it.
    pub(super) fn skipped_rule(&self, rule: &str) {
        if let Some(count) = next(&self.skipped_rules) {
            tracing::warn!(
                target: "trypema",
                count,
                "rate limit: skipped rule `{rule}`, because it limits concurrency and the layer reserves nothing: \
                 add `.reserve(ttl)` (logged at 1, 2, 4, 8 … occurrences)"
            );
        }
    }
}

/// Counts an occurrence. Returns its number if it has to be logged.
#[cfg(feature = "tracing")]
fn next(count: &AtomicU64) -> Option<u64> {
    let count = count.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    count.is_power_of_two().then_some(count)
}

#[cfg(not(feature = "tracing"))]
#[allow(clippy::unused_self, reason = "it is used with the feature `tracing`")]
impl MisconfigurationLog {
    pub(super) fn missing_key(&self, _: &str) {}

    pub(super) fn skipped_rule(&self, _: &str) {}
}
