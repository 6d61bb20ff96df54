//! The demand for one key: the recent rate of its calls and units.

/// A key becomes warm, which makes a lease worthwhile, with this many calls in each of two consecutive
/// intervals. It stays warm with this many calls in one of the last two. With fewer calls, leasing would take
/// as many calls to Redis as plain takes.
pub(super) const WARM_CALLS: u64 = 2;

/// A key becomes warm immediately with this many calls within one interval.
pub(super) const HOT_CALLS: u64 = 4;

/// The most intervals without a call that count as part of the next one with calls. Calls that were held up, because the
/// machine or Redis stood still, come all at once: their number says little about the calls that follow. A longer pause
/// says little, too.
const LONGEST_PAUSE: u64 = 4;

/// The number of first calls for a key after which a rate is no longer derived from less than an interval.
const FIRST_CALLS: u64 = 16;

/// The calls and units of one key in the current and the previous interval.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Demand {
    /// The first call of the current interval.
    first: u64,
    /// The end of the pause-free part of the previous interval: `first`, or earlier if there was a pause.
    since: u64,
    /// The calls in the current interval, and the units that they requested.
    calls: u64,
    units: u64,
    /// The calls in the previous interval, and the units per microsecond.
    calls_before: u64,
    rate_before: f64,
    /// Whether the key is called often enough for a lease.
    is_warm: bool,
}

impl Demand {
    /// Returns the demand of a key that has just become warm. The current call is not counted yet.
    pub(super) fn warm(now: u64) -> Self {
        Self { first: now, since: now, calls: WARM_CALLS - 1, is_warm: true, ..Self::default() }
    }

    /// Counts a call.
    #[inline]
    pub(super) fn count(&mut self, now: u64, interval_us: u64, units: u64) {
        let elapsed = now.saturating_sub(self.first);
        if elapsed >= interval_us {
            // The calls since `first` were made within an interval, and what came after that was a pause.
            let ended_at = self.first + interval_us;
            self.rate_before = self.units as f64 / ended_at.saturating_sub(self.since).max(1) as f64;
            let ended = if elapsed < 2 * interval_us { self.calls } else { 0 };
            // One interval with few calls may be chance. Two in a row make the key cold.
            self.is_warm &= ended.max(self.calls_before) >= WARM_CALLS;
            self.calls_before = ended;
            self.since = ended_at.max(now.saturating_sub(LONGEST_PAUSE * interval_us));
            (self.first, self.calls, self.units) = (now, 0, 0);
        }
        self.calls += 1;
        self.is_warm |= self.calls >= HOT_CALLS || self.calls.min(self.calls_before) >= WARM_CALLS;
        self.units = self.units.saturating_add(units);
    }

    /// Returns the units that calls are expected to request in the next `interval_us`, based on the recent
    /// rate. Never more than calls have requested within one interval of this length, since the previous one began; of the first
    /// [`FIRST_CALLS`] calls for a key, at most four times that.
    pub(super) fn expected(&self, now: u64, interval_us: u64) -> u64 {
        let is_current = now.saturating_sub(self.first) < interval_us;
        // A shorter time than an interval says little about a whole one: a burst need not go on. Of the first calls for a key
        // nothing else is known.
        let is_new = self.rate_before == 0.0 && is_current && self.calls <= FIRST_CALLS;
        let shortest_us = if is_new { interval_us / 4 } else { interval_us };
        let recent = self.units as f64 / now.saturating_sub(self.since).max(shortest_us).max(1) as f64;
        let rate = if is_current { recent.max(self.rate_before) } else { recent };
        (rate * interval_us as f64).ceil() as u64
    }

    /// Whether the key is called often enough for a lease.
    pub(super) fn is_warm(&self, now: u64, interval_us: u64) -> bool {
        self.is_warm && now.saturating_sub(self.first) < 2 * interval_us
    }

    /// Whether no call was counted for at least one interval.
    pub(super) fn is_idle(&self, now: u64, interval_us: u64) -> bool {
        now.saturating_sub(self.first) > 2 * interval_us
    }
}
