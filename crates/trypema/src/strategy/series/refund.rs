//! Refunds to a series.

use super::Series;

impl Series {
    /// Removes up to `units` from the bucket that counted them at `moment`. Returns the number removed.
    pub(in crate::strategy) fn refund_at(&mut self, moment: u64, group_us: u64, units: u64) -> u64 {
        if moment >= self.first {
            let refunded = if moment > self.newest() { 0 } else { units.min(self.open) };
            self.open -= refunded;
            return refunded;
        }
        let closed = self.closed();
        let index = closed.partition(|i| closed.stamp(i) < moment);
        // A bucket spans less than a group. A bucket that ends a group or more after `moment` holds other
        // calls.
        if index == closed.len() || closed.stamp(index) - moment >= group_us.max(1) {
            return 0;
        }
        let before = if index == 0 { self.closed } else { closed.units_after(index - 1) };
        let refunded = units.min(before - closed.units_after(index));
        if refunded > 0 {
            self.ring.subtract(index, refunded);
            self.closed -= refunded;
        }
        refunded
    }

    /// Removes up to `units`, the oldest first. Returns the number removed.
    ///
    /// Only the sums change. `Buckets::units_after` never returns more than the sum of the closed buckets, so
    /// the oldest buckets become empty without being written.
    pub(in crate::strategy) fn refund_oldest(&mut self, units: u64) -> u64 {
        let from_closed = units.min(self.closed);
        let from_open = (units - from_closed).min(self.open);
        self.closed -= from_closed;
        self.open -= from_open;
        from_closed + from_open
    }
}
