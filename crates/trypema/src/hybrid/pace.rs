//! How long leases last.

use crate::strategy::Leasable;

/// Leases are short beside the window: so many intervals. What is held unspent and what counts late is 2.75 of them at most,
/// which is less than 2 %.
const INTERVALS_PER_WINDOW: u64 = 140;

/// Clocks run at rates that differ by less than one in this many: a lease is over that much earlier.
const DRIFT: u64 = 512;

/// The times that an instance goes by, for one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// What is asked for at once is what is expected in this time; denials are remembered as long at most.
    pub(crate) interval_us: u64,
    /// How long a lease lasts. Longer than the interval, so that the next one can come before it is over.
    pub(crate) length_us: u64,
}

impl Pace {
    /// For a limit, where instances ask every `sync_us` at most.
    pub fn of<S: Leasable>(limit: &S::Limit, sync_us: u64) -> Self {
        let interval_us = sync_us.min(S::window_us(limit) / INTERVALS_PER_WINDOW).max(1);
        // With time enough to give back what is left before it counts, where that has to be.
        let quarters = if S::IS_RETURNED_EARLY { 7 } else { 5 };
        Self { interval_us, length_us: interval_us * quarters / 4 }
    }

    /// The interval: what is asked for at once is what is expected in it.
    pub fn interval_us(self) -> u64 {
        self.interval_us
    }

    /// How much of `lasts_us` by the shared clock is sure to be left by this one's.
    pub(super) fn certain_us(self, lasts_us: u64) -> u64 {
        lasts_us - lasts_us.div_ceil(DRIFT).min(lasts_us)
    }
}
