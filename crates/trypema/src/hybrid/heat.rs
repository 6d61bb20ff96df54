//! Which keys are called often: a count per place of a small table, so that keys which are not cost no memory.

use std::sync::atomic::{AtomicU64, Ordering};

use super::demand::HOT_CALLS;

/// Places to count in. Keys that share one only seem hotter than they are, which costs a lease that is given back.
const PLACES: usize = 1 << 12;

/// Counts of calls within the present interval.
#[derive(Debug)]
pub(super) struct Heat(Box<[AtomicU64]>);

impl Heat {
    pub(super) fn new() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }

    /// Counts a call of the key with this hash; whether it is hot.
    pub(super) fn count(&self, hash: u64, now_us: u64, interval_us: u64) -> bool {
        // Keys whose intervals differ do not share a place: they would start each other anew.
        let hash = hash ^ interval_us.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let Some(place) = self.0.get((hash >> 20) as usize % PLACES) else { return false };
        let interval = (now_us / interval_us) << 32;
        // Two callers at once may count as one: then it is hot a call later.
        let counted = place.load(Ordering::Relaxed);
        let calls = if counted >> 32 == interval >> 32 { (counted & 0xFFFF) + 1 } else { 1 };
        place.store(interval | calls.min(HOT_CALLS), Ordering::Relaxed);
        calls >= HOT_CALLS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hot_from_its_fourth_call_in_an_interval_on() {
        let heat = Heat::new();
        let calls: Vec<bool> = (0..6).map(|at| heat.count(7 << 20, 1_000 + at, 1_000)).collect();
        assert_eq!(calls, [false, false, false, true, true, true]);
        assert!(!heat.count(7 << 20, 2_000, 1_000), "another interval starts anew");
        assert!(!heat.count(8 << 20, 1_005, 1_000), "another key is another matter");
    }
}
