//! The clock of an instance, as it differs from the store's.

use trypema::clock::{Span, Timestamp};

/// A clock that is off, runs at a rate of its own, and may be read coarsely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalClock {
    /// What it shows at the start, beyond the store's.
    pub ahead_us: i64,
    /// What it gains in a million microseconds.
    pub gains_ppm: i64,
    /// How wide the stretch is that a quick look at it gives; 1 for a moment.
    pub coarse_us: u64,
}

impl LocalClock {
    /// The store's own.
    pub const PERFECT: Self = Self { ahead_us: 0, gains_ppm: 0, coarse_us: 1 };

    /// What it shows `elapsed_us` after `start_us`.
    pub(super) fn at(&self, start_us: u64, elapsed_us: u64) -> Timestamp {
        let gained = (elapsed_us as i64 * self.gains_ppm).div_euclid(1_000_000);
        Timestamp::from_micros((start_us + elapsed_us).saturating_add_signed(self.ahead_us + gained))
    }

    /// What a quick look at it gives when it shows `now`.
    pub(super) fn span(&self, now: Timestamp) -> Span {
        let earliest = now.as_micros() / self.coarse_us * self.coarse_us;
        Span {
            earliest: Timestamp::from_micros(earliest),
            latest: Timestamp::from_micros(earliest + self.coarse_us - 1),
        }
    }
}
