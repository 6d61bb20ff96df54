//! How much is asked of a key.

/// So many calls in each of two intervals make a lease worth asking for, and so many in one of two keep it so: fewer would be as many calls of
/// Redis without one.
pub(super) const WARM_CALLS: u64 = 2;

/// So many calls within one interval make it worth asking for at once.
pub(super) const HOT_CALLS: u64 = 4;

/// Calls and units of one key, lately.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Demand {
    /// When the present interval began.
    since: u64,
    /// Calls in it, and the units they asked for.
    calls: u64,
    units: u64,
    /// Calls and units per microsecond in the interval before.
    calls_before: u64,
    rate_before: f64,
    /// Whether it is called often enough for a lease.
    is_warm: bool,
}

impl Demand {
    /// Of a key that was just found to be called often; its present call is still to be counted.
    pub(super) fn warm(now: u64) -> Self {
        Self { since: now, calls: WARM_CALLS - 1, is_warm: true, ..Self::default() }
    }

    /// Counts a call.
    #[inline]
    pub(super) fn count(&mut self, now: u64, interval_us: u64, units: u64) {
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= interval_us {
            self.rate_before = self.units as f64 / elapsed as f64;
            let ended = if elapsed < 2 * interval_us { self.calls } else { 0 };
            // One interval with few calls is chance: only two in a row end it.
            self.is_warm &= ended.max(self.calls_before) >= WARM_CALLS;
            self.calls_before = ended;
            (self.since, self.calls, self.units) = (now, 0, 0);
        }
        self.calls += 1;
        self.is_warm |= self.calls >= HOT_CALLS || self.calls.min(self.calls_before) >= WARM_CALLS;
        self.units = self.units.saturating_add(units);
    }

    /// What will be asked for in the next `interval_us`, going by the last one.
    pub(super) fn expected(&self, now: u64, interval_us: u64) -> u64 {
        let elapsed = now.saturating_sub(self.since);
        // The beginning of an interval says little about the rest of it.
        let recent = self.units as f64 / elapsed.max(interval_us / 4).max(1) as f64;
        let rate = if elapsed < interval_us { recent.max(self.rate_before) } else { recent };
        (rate * interval_us as f64).ceil() as u64
    }

    /// Whether it is called often enough for a lease.
    pub(super) fn is_warm(&self, now: u64, interval_us: u64) -> bool {
        self.is_warm && now.saturating_sub(self.since) < 2 * interval_us
    }

    /// Whether nobody has called for about an interval.
    pub(super) fn is_idle(&self, now: u64, interval_us: u64) -> bool {
        now.saturating_sub(self.since) > 2 * interval_us
    }
}
