//! The numbers that make up a limit. Each is validated once, when it is created.

use std::time::Duration;

use crate::error::TrypemaError;

/// The largest integer up to which Lua's doubles are exact, so that Rust and Redis count alike.
pub(crate) const MAX_EXACT: u64 = (1 << 53) - 1;

/// The longest window: a leap year. It is long enough for yearly quotas, and short enough that a capacity
/// (window times the largest rate) stays below 2^53.
pub(crate) const MAX_WINDOW: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The largest rate, in units per second. Its product with [`MAX_WINDOW`], the largest capacity, is below
/// 2^53.
const MAX_RATE: f64 = 100_000_000.0;

/// The largest group, one hour: its length in microseconds fits into 32 bits.
const MAX_GROUP_MS: u64 = 3_600_000;

/// The largest factor, which is far above any useful headroom. The hard limit itself saturates at 2^53 - 1.
const MAX_HARD_LIMIT_FACTOR: f64 = 1_000_000.0;

/// A factor that corrects rounding errors: a product such as 0.29 × 100 is slightly below the intended
/// integer.
const CAPACITY_NUDGE: f64 = 1.0 + 1e-12;

/// A rate in units per second, which may be fractional.
///
/// ```
/// use trypema::RateLimit;
///
/// assert_eq!(*RateLimit::try_from(5.5)?, 5.5);
/// assert!(RateLimit::try_from(f64::NAN).is_err());
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct RateLimit(f64);

impl TryFrom<f64> for RateLimit {
    type Error = TrypemaError;

    fn try_from(given: f64) -> Result<Self, TrypemaError> {
        if given.is_normal() && given > 0.0 && given <= MAX_RATE {
            Ok(Self(given))
        } else {
            Err(TrypemaError::InvalidRateLimit { given, max: MAX_RATE })
        }
    }
}

impl std::ops::Deref for RateLimit {
    type Target = f64;

    fn deref(&self) -> &f64 {
        &self.0
    }
}

/// The length of a sliding window, in whole seconds.
///
/// ```
/// use trypema::WindowSizeSeconds;
///
/// assert_eq!(*WindowSizeSeconds::try_from(60)?, 60);
/// assert!(WindowSizeSeconds::try_from(0).is_err());
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowSizeSeconds(u64);

impl WindowSizeSeconds {
    /// A minute: long enough to smooth bursts, short enough to recover from one.
    pub(crate) const DEFAULT: Self = Self(60);

    pub(crate) fn as_micros(self) -> u64 {
        self.0 * 1_000_000
    }

    /// Returns the units that fit into the window at `rate`, rounded down.
    #[inline]
    pub(crate) fn capacity(self, rate: RateLimit) -> u64 {
        (self.0 as f64 * rate.0 * CAPACITY_NUDGE) as u64
    }
}

impl TryFrom<u64> for WindowSizeSeconds {
    type Error = TrypemaError;

    fn try_from(given: u64) -> Result<Self, TrypemaError> {
        let max_seconds = MAX_WINDOW.as_secs();
        if (1..=max_seconds).contains(&given) {
            Ok(Self(given))
        } else {
            Err(TrypemaError::InvalidWindowSize { given_seconds: given, max_seconds })
        }
    }
}

impl std::ops::Deref for WindowSizeSeconds {
    type Target = u64;

    fn deref(&self) -> &u64 {
        &self.0
    }
}

/// The time within which calls share a bucket of a sliding window, in milliseconds.
///
/// ```
/// use trypema::RateGroupSizeMs;
///
/// assert_eq!(*RateGroupSizeMs::try_from(10)?, 10);
/// assert!(RateGroupSizeMs::try_from(0).is_err());
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RateGroupSizeMs(u64);

impl RateGroupSizeMs {
    /// Ten milliseconds: too fine to notice, and coarse enough that the state of a busy key stays small.
    pub(crate) const DEFAULT: Self = Self(10);

    pub(crate) fn as_micros(self) -> u64 {
        self.0 * 1_000
    }
}

impl TryFrom<u64> for RateGroupSizeMs {
    type Error = TrypemaError;

    fn try_from(given_ms: u64) -> Result<Self, TrypemaError> {
        if (1..=MAX_GROUP_MS).contains(&given_ms) {
            Ok(Self(given_ms))
        } else {
            Err(TrypemaError::InvalidRateGroupSize { given_ms, max_ms: MAX_GROUP_MS })
        }
    }
}

impl std::ops::Deref for RateGroupSizeMs {
    type Target = u64;

    fn deref(&self) -> &u64 {
        &self.0
    }
}

/// The ratio of the suppressed strategy's hard limit, above which it denies all calls, to its soft limit.
///
/// The default is 2.0. A factor of 1.0 leaves no room to suppress, and below 2 the opening burst repeats in
/// later windows.
///
/// ```
/// use trypema::HardLimitFactor;
///
/// assert_eq!(*HardLimitFactor::default(), 2.0);
/// assert!(HardLimitFactor::try_from(0.9).is_err());
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct HardLimitFactor(f64);

impl HardLimitFactor {
    pub(crate) const DEFAULT: Self = Self(2.0);

    /// Returns the hard limit for a soft limit of `soft`, rounded down, at most 2^53 - 1.
    #[inline]
    pub(crate) fn hard_capacity(self, soft: u64) -> u64 {
        ((soft as f64 * self.0 * CAPACITY_NUDGE) as u64).clamp(soft, MAX_EXACT.max(soft))
    }
}

impl Default for HardLimitFactor {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl TryFrom<f64> for HardLimitFactor {
    type Error = TrypemaError;

    fn try_from(given: f64) -> Result<Self, TrypemaError> {
        if (1.0..=MAX_HARD_LIMIT_FACTOR).contains(&given) {
            Ok(Self(given))
        } else {
            Err(TrypemaError::InvalidHardLimitFactor { given, max: MAX_HARD_LIMIT_FACTOR })
        }
    }
}

impl std::ops::Deref for HardLimitFactor {
    type Target = f64;

    fn deref(&self) -> &f64 {
        &self.0
    }
}

/// Returns a window in whole microseconds, rounded up (towards denial).
pub(crate) fn window_micros(given: Duration) -> Result<u64, TrypemaError> {
    let invalid = TrypemaError::InvalidWindow { given, max: MAX_WINDOW };
    if given.is_zero() || given > MAX_WINDOW {
        return Err(invalid);
    }
    u64::try_from(given.as_nanos().div_ceil(1_000)).map_err(|_| invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_survives_fractions() {
        let capacity = |window, rate| {
            WindowSizeSeconds::try_from(window).unwrap().capacity(RateLimit::try_from(rate).unwrap())
        };
        assert_eq!(capacity(100, 0.29), 29);
        assert_eq!(capacity(60, 5.5), 330);
        assert_eq!(capacity(1, 0.5), 0);
        assert_eq!(capacity(3, 1.0 / 3.0), 1);
        assert!(capacity(366 * 86_400, MAX_RATE) <= MAX_EXACT);
    }

    #[test]
    fn bad_numbers_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE / 2.0, 1e9] {
            assert!(RateLimit::try_from(rate).is_err(), "{rate}");
        }
        for factor in [0.0, 0.999, -2.0, f64::NAN, f64::INFINITY, 1e7] {
            assert!(HardLimitFactor::try_from(factor).is_err(), "{factor}");
        }
        for window in [0, 366 * 86_400 + 1, u64::MAX] {
            assert!(WindowSizeSeconds::try_from(window).is_err(), "{window}");
        }
        for group in [0, MAX_GROUP_MS + 1, u64::MAX] {
            assert!(RateGroupSizeMs::try_from(group).is_err(), "{group}");
        }
    }
}
