//! Rate-limited log lines, for events that clients can cause at any rate.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::registry::TICK;

/// The minimum interval between two log lines about the same event.
const EVERY: Duration = Duration::from_secs(60);
const EVERY_TICKS: u32 = (EVERY.as_millis() / TICK.as_millis()) as u32;

/// An event that is logged at most once per [`EVERY`].
#[derive(Debug, Default)]
pub(super) struct Notice {
    /// The tick of the last log line plus one; 0 before the first.
    logged: AtomicU32,
}

impl Notice {
    /// Claims the right to log now. Returns whether a minute has passed since the last claim that
    /// succeeded.
    pub(super) fn claim(&self, now: u32) -> bool {
        let due = |logged: u32| {
            let is_due = logged == 0 || now >= logged.saturating_add(EVERY_TICKS);
            is_due.then(|| now.saturating_add(1))
        };
        self.logged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_a_minute() {
        let notice = Notice::default();
        assert!(notice.claim(5));
        assert!(!notice.claim(5) && !notice.claim(5 + EVERY_TICKS));
        assert!(notice.claim(6 + EVERY_TICKS));
        assert!(!notice.claim(7 + EVERY_TICKS));
    }
}
