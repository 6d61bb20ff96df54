//! How long leases last.

use crate::strategy::Leasable;

/// Intervals in a window. A lease lasts 1.25 of them and 1.5 are held unspent, so at most 2.75 of 140 are out of use:
/// less than 2 %.
const INTERVALS_PER_WINDOW: u64 = 140;

/// The same where a lease lasts 1.75 intervals: 3.25 of 163 are less than 2 %, too.
const INTERVALS_PER_WINDOW_RETURNED_EARLY: u64 = 163;

/// Clocks run at rates that differ by less than one in this many: a lease is over that much earlier.
const DRIFT: u64 = 512;

/// Keys are swept at least this often, whatever the interval: leases of short windows end soon.
const LONGEST_SWEEP_INTERVAL_US: u64 = 50_000;

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
        // With time enough to give back what is left before it counts, where that has to be.
        let (per_window, quarters) = match S::IS_RETURNED_EARLY {
            true => (INTERVALS_PER_WINDOW_RETURNED_EARLY, 7),
            false => (INTERVALS_PER_WINDOW, 5),
        };
        let interval_us = sync_us.min(S::window_us(limit) / per_window).max(1);
        Self { interval_us, length_us: interval_us * quarters / 4 }
    }

    /// The interval: what is asked for at once is what is expected in it.
    pub fn interval_us(self) -> u64 {
        self.interval_us
    }

    /// How often keys are swept: what is left of ended leases is given back, what is idle is forgotten.
    pub fn sweep_interval_us(sync_us: u64) -> u64 {
        (sync_us / 2).clamp(1_000, LONGEST_SWEEP_INTERVAL_US)
    }

    /// How much of `lasts_us` by the shared clock is sure to be left by this one's.
    pub(super) fn certain_us(self, lasts_us: u64) -> u64 {
        lasts_us - lasts_us.div_ceil(DRIFT).min(lasts_us)
    }
}
