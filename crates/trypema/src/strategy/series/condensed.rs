//! Condensed copies of a series.

use super::Series;
use super::ring::Ring;

/// The number of closed buckets in a condensed copy, besides one for each window. Each stands for up to a
/// 32nd of the original buckets, so capacity comes back later by at most the time that those span.
const BUCKETS: usize = 32;

impl Series {
    /// Returns a copy of bounded size. At `now`, it counts the same in each of `windows_us`. Later it counts
    /// at least as much, because merged buckets leave the window together with the newest of them.
    pub(in crate::strategy) fn condensed(&self, now: u64, windows_us: &[u64]) -> Self {
        let closed = self.closed();
        if closed.len() <= BUCKETS {
            return self.clone();
        }
        let mut last_of_each: Vec<usize> = (1..=BUCKETS).map(|i| i * closed.len() / BUCKETS - 1).collect();
        for window_us in windows_us {
            let expired = closed.partition(|i| closed.stamp(i) + window_us <= now);
            last_of_each.extend(expired.checked_sub(1));
        }
        last_of_each.sort_unstable();
        last_of_each.dedup();
        let mut before = self.closed;
        let buckets = last_of_each.iter().map(|index| {
            let after = closed.units_after(*index);
            let units = before - after;
            before = after;
            (closed.stamp(*index), units)
        });
        Self {
            first: self.first,
            open: self.open,
            closed: self.closed,
            oldest: closed.stamp(last_of_each[0]),
            ring: Ring::of(buckets, self.ring.is_wide()),
            open_span_us: self.open_span_us,
            horizon: self.horizon,
        }
    }
}
