//! The length of leases, and the interval between lease requests.

use crate::strategy::Leasable;

/// The minimum number of intervals in a window. A lease lasts 1.25 intervals, and units for 1.5 intervals
/// are held unspent, so at most 2.75 of 140 intervals are unused: less than 2 %.
const INTERVALS_PER_WINDOW: u64 = 140;

/// The minimum number of intervals if leases last 1.75 intervals: 3.25 of 163 is less than 2 % as well.
const INTERVALS_PER_WINDOW_RETURNED_EARLY: u64 = 163;

/// The tolerated difference of clock rates: the instance's clock may run slower than that of Redis by one
/// part in this many. Leases are shortened accordingly.
const DRIFT: u64 = 512;

/// The maximum time between two sweeps, however long the interval is: leases of short windows end soon.
const LONGEST_SWEEP_INTERVAL_US: u64 = 50_000;

/// The timing of an instance's leases under one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// A request asks for the units that are expected in this time. Denials are remembered for at most this
    /// long.
    pub(crate) interval_us: u64,
    /// The length of a lease. Longer than the interval, so that the next lease can arrive before it ends.
    pub(crate) length_us: u64,
}

impl Pace {
    /// Returns the timing for a limit, with at most `sync_us` between two lease requests.
    pub fn of<S: Leasable>(limit: &S::Limit, sync_us: u64) -> Self {
        // Units that must be refunded before the lease ends need a longer lease, to leave time for the
        // refund.
        let (per_window, quarters) = match S::REFUND_BEFORE_END {
            true => (INTERVALS_PER_WINDOW_RETURNED_EARLY, 7),
            false => (INTERVALS_PER_WINDOW, 5),
        };
        let interval_us = sync_us.min(S::window_us(limit) / per_window).max(1);
        Self { interval_us, length_us: interval_us * quarters / 4 }
    }

    /// Returns the interval: a request asks for the units that are expected in this time.
    pub fn interval_us(self) -> u64 {
        self.interval_us
    }

    /// Returns the time between two sweeps, which return the units of ended leases and remove idle keys.
    pub fn sweep_interval_us(sync_us: u64) -> u64 {
        (sync_us / 2).clamp(1_000, LONGEST_SWEEP_INTERVAL_US)
    }

    /// Returns a duration by the instance's clock that is certainly no longer than `lasts_us` by the clock
    /// of Redis.
    pub(super) fn certain_us(self, lasts_us: u64) -> u64 {
        lasts_us - lasts_us.div_ceil(DRIFT).min(lasts_us)
    }
}
