//! The only module of the server that reads the system's clocks.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time at which something began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Started(Instant);

impl Started {
    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn ago(self) -> Duration {
        Self::now().0.saturating_duration_since(self.0)
    }
}

/// Returns the time since the Unix epoch, for metrics and spans.
#[allow(clippy::disallowed_methods, reason = "this is the clock")]
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns a duration in milliseconds, for a field such as `retry_after_ms`.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
