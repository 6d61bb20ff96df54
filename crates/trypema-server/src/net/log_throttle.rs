//! Rate-limited log lines, for events that clients can cause at any rate.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::registry::TICK;

/// The minimum interval between two log lines about the same event.
const INTERVAL: Duration = Duration::from_secs(60);
const INTERVAL_TICKS: u32 = (INTERVAL.as_millis() / TICK.as_millis()) as u32;

/// Limits the log lines about one event to one per [`INTERVAL`].
#[derive(Debug, Default)]
pub(super) struct LogThrottle {
    /// The tick of the last log line plus one; 0 before the first.
    last_logged: AtomicU32,
}

impl LogThrottle {
    /// Claims the right to log now. Returns whether a minute has passed since the last claim that
    /// succeeded.
    pub(super) fn try_claim(&self, now: u32) -> bool {
        let due = |logged: u32| {
            let is_due = logged == 0 || now >= logged.saturating_add(INTERVAL_TICKS);
            is_due.then(|| now.saturating_add(1))
        };
        self.last_logged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_minute() {
        let throttle = LogThrottle::default();
        assert!(throttle.try_claim(5));
        assert!(!throttle.try_claim(5) && !throttle.try_claim(5 + INTERVAL_TICKS));
        assert!(throttle.try_claim(6 + INTERVAL_TICKS));
        assert!(!throttle.try_claim(7 + INTERVAL_TICKS));
    }
}
