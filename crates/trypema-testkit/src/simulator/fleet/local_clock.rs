//! The clock of an instance, which may differ from the store's.

use trypema::clock::Timestamp;

/// A clock with an offset and a drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalClock {
    /// The offset to the store's clock at the start.
    pub ahead_us: i64,
    /// The drift, in microseconds per second.
    pub gains_ppm: i64,
}

impl LocalClock {
    /// A clock that equals the store's.
    pub const PERFECT: Self = Self { ahead_us: 0, gains_ppm: 0 };

    /// Returns the time that the clock shows `elapsed_us` after `start_us`.
    pub(super) fn at(&self, start_us: u64, elapsed_us: u64) -> Timestamp {
        let gained = (elapsed_us as i64 * self.gains_ppm).div_euclid(1_000_000);
        Timestamp::from_micros((start_us + elapsed_us).saturating_add_signed(self.ahead_us + gained))
    }
}
