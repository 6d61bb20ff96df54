//! Finds the keys that are called often enough for a lease, with call counts in a table of fixed size. A key
//! without a lease needs no other memory.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::demand::{HOT_CALLS, WARM_CALLS};

/// The number of slots in a bucket. A key without a slot replaces the key whose last call is the oldest.
const WAYS: usize = 4;

/// The number of buckets. With four slots each, the table has room for 16,384 keys in 128 KiB. If more keys
/// are called within an interval, some are not detected, and Redis decides their calls.
const BUCKETS: usize = 1 << 12;

const INTERVAL_BITS: u32 = 24;
const INTERVAL_MASK: u64 = (1 << INTERVAL_BITS) - 1;

/// The calls of one key in the current and the previous interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallTally {
    /// The number of the interval, modulo 2^24.
    interval: u64,
    calls: u8,
    calls_before: u8,
}

impl CallTally {
    /// Counts a call in the interval with this number. Returns whether the key is called often enough for a
    /// lease: [`HOT_CALLS`] in one interval, or [`WARM_CALLS`] in each of two consecutive ones.
    pub fn count(&mut self, interval: u64) -> bool {
        let interval = interval & INTERVAL_MASK;
        match self.age(interval) {
            0 => {}
            1 => *self = Self { interval, calls: 0, calls_before: self.calls },
            _ => *self = Self { interval, calls: 0, calls_before: 0 },
        }
        self.calls = self.calls.saturating_add(1);
        u64::from(self.calls) >= HOT_CALLS || u64::from(self.calls.min(self.calls_before)) >= WARM_CALLS
    }

    /// Returns the number of intervals since the last call.
    pub fn age(&self, interval: u64) -> u64 {
        interval.wrapping_sub(self.interval) & INTERVAL_MASK
    }

    fn packed(self, mark: u64) -> u64 {
        (mark << 40) | (self.interval << 16) | (u64::from(self.calls_before) << 8) | u64::from(self.calls)
    }

    fn unpacked(place: u64) -> Self {
        let [calls, calls_before, ..] = place.to_le_bytes();
        Self { interval: (place >> 16) & INTERVAL_MASK, calls, calls_before }
    }
}

/// The call counts of keys without leases. Each slot holds 24 bits of the key's hash and a [`CallTally`].
#[derive(Debug, Default)]
pub(super) struct CallFrequency(OnceLock<Box<[AtomicU64]>>);

impl CallFrequency {
    /// Counts a call of the key with this hash. Returns whether the key is called often enough for a lease.
    pub(super) fn count(&self, hash: u64, now_us: u64, interval_us: u64) -> bool {
        let places = self.0.get_or_init(|| (0..WAYS * BUCKETS).map(|_| AtomicU64::new(0)).collect());
        // A key that is called under two limits is counted as two keys, because their intervals differ.
        let hash = hash ^ interval_us.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (mark, first) = (hash >> 40, (hash as usize % BUCKETS) * WAYS);
        let interval = (now_us / interval_us) & INTERVAL_MASK;
        let bucket = &places[first..first + WAYS];
        let tally_of = |place: &AtomicU64| CallTally::unpacked(place.load(Ordering::Relaxed));
        let own = bucket.iter().find(|place| place.load(Ordering::Relaxed) >> 40 == mark);
        let least = |place: &&AtomicU64| {
            let tally = tally_of(place);
            (u64::MAX - tally.age(interval), tally.calls)
        };
        let Some(place) = own.or_else(|| bucket.iter().min_by_key(least)) else { return false };
        // Two concurrent calls may be counted as one. The key is then detected one call later.
        let mut tally = if own.is_some() { tally_of(place) } else { CallTally::default() };
        let is_often = tally.count(interval);
        place.store(tally.packed(mark), Ordering::Relaxed);
        is_often
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hot_from_its_fourth_call_in_an_interval_on() {
        let frequency = CallFrequency::default();
        let calls: Vec<bool> = (0..6).map(|at| frequency.count(7 << 40, 1_000 + at, 1_000)).collect();
        assert_eq!(calls, [false, false, false, true, true, true]);
        assert!(!frequency.count(7 << 40, 3_000, 1_000), "after an interval without calls it starts anew");
        assert!(!frequency.count(8 << 40, 1_005, 1_000), "another key in the same bucket has its own count");
    }

    #[test]
    fn a_key_is_warm_from_its_second_call_in_a_second_interval_on() {
        let frequency = CallFrequency::default();
        let calls = [1_100, 1_600, 2_100, 2_600].map(|now_us| frequency.count(1, now_us, 1_000));
        assert_eq!(calls, [false, false, false, true]);
        let rare = [1_100, 2_600, 3_100, 4_100].map(|now_us| frequency.count(2, now_us, 1_000));
        assert_eq!(rare, [false; 4], "once in an interval, or twice in one, is too rarely");
    }

    #[test]
    fn keys_called_once_neither_seem_warm_nor_hide_one_that_is() {
        let frequency = CallFrequency::default();
        let mut is_noticed = false;
        for round in 0..8 {
            is_noticed |= frequency.count(5, 1_000 * (round / 2) + 500 * (round % 2), 1_000);
            for stranger in 0..2_000_u64 {
                let hash = (round * 2_000 + stranger + 9).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                assert!(!frequency.count(hash, 1_000 * (round / 2) + 500 * (round % 2), 1_000));
            }
        }
        assert!(is_noticed);
    }
}
