//! How much is asked of a key.

/// Calls and units of one key, lately.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Demand {
    /// When the present interval began.
    since: u64,
    /// Units asked for in it.
    units: u64,
    /// Units per microsecond in the interval before.
    before: f64,
}

impl Demand {
    /// Counts a call.
    #[inline]
    pub(super) fn count(&mut self, now: u64, interval_us: u64, units: u64) {
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= interval_us {
            self.before = self.units as f64 / elapsed as f64;
            (self.since, self.units) = (now, 0);
        }
        self.units = self.units.saturating_add(units);
    }

    /// What will be asked for in the next `interval_us`, going by the last one.
    pub(super) fn expected(&self, now: u64, interval_us: u64) -> u64 {
        let elapsed = now.saturating_sub(self.since);
        // The beginning of an interval says little about the rest of it.
        let recent = self.units as f64 / elapsed.max(interval_us / 4).max(1) as f64;
        let rate = if elapsed < interval_us { recent.max(self.before) } else { recent };
        (rate * interval_us as f64).ceil() as u64
    }

    /// Whether nobody has called for about an interval.
    pub(super) fn is_idle(&self, now: u64, interval_us: u64) -> bool {
        now.saturating_sub(self.since) > 2 * interval_us
    }
}
