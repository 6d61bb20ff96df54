//! Fixed windows, and days and weeks in UTC, as lengths of time.

use std::time::Duration;

use trypema::clock::Timestamp;
use trypema::rules::{CalendarPeriod, FixedWindowNumbers, Numbers};

const DAY_US: u64 = 86_400_000_000;

/// Windows of one length.
#[derive(Debug, Clone, Copy)]
pub(super) struct AlignedWindow {
    pub(super) limit: u64,
    length_us: u64,
    /// The time from the epoch back to the start of a window.
    offset_us: u64,
}

impl AlignedWindow {
    /// Returns the windows of a strategy. `None` if it is not a fixed window, or if its windows differ in length.
    pub(super) fn of(numbers: &Numbers) -> Option<Self> {
        let Numbers::FixedWindow(FixedWindowNumbers { limit, window, per, zone, starts }) = numbers else {
            return None;
        };
        let (length_us, offset_us) = match (window, per) {
            (Some(window), None) => (window.0.as_micros() as u64, 0),
            (None, Some(CalendarPeriod::Day)) => (DAY_US, 0),
            // The epoch was a Thursday, and a week starts on Monday.
            (None, Some(CalendarPeriod::Week)) => (7 * DAY_US, 3 * DAY_US),
            _ => return None,
        };
        (zone.is_none() && starts.is_none()).then_some(Self { limit: *limit, length_us, offset_us })
    }

    /// Returns a number that is different for every window.
    pub(super) fn start_us(self, at: Timestamp) -> u64 {
        (at.as_micros() + self.offset_us) / self.length_us * self.length_us
    }

    /// Returns the time until the window ends.
    pub(super) fn until_end(self, at: Timestamp) -> Duration {
        Duration::from_micros(self.start_us(at) + self.length_us - (at.as_micros() + self.offset_us))
    }
}
