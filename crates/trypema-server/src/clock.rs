//! The only place of the service that reads the time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// When something began.
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

/// The time since 1970, as metrics and spans tell it.
#[allow(clippy::disallowed_methods, reason = "this is the clock")]
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
