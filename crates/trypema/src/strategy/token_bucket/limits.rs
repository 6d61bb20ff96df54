//! The limits of a token bucket, in units that make refilling exact.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::error::TrypemaError;
use crate::units::{MAX_EXACT, window_micros};

/// A capacity in tokens, and the time in which an empty bucket refills continuously.
///
/// Tokens are counted in smaller units: one token is `unit` of them, and refilling pays off `drain` of them
/// each microsecond. Both are whole numbers without a common divisor.
///
/// ```
/// use std::time::Duration;
/// use trypema::TokenLimit;
///
/// let ten_a_second = TokenLimit::new(10, Duration::from_secs(1))?;
/// assert_eq!(ten_a_second.capacity(), 10);
/// assert!(TokenLimit::new(0, Duration::from_secs(1)).is_err());
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenLimit {
    pub(super) capacity: u64,
    pub(super) refill_us: u64,
    pub(super) unit: u64,
    pub(super) drain: u64,
    /// The capacity in units.
    pub(super) full: u64,
    pub(super) rate: Rate,
}

impl TokenLimit {
    /// The largest number of limits in one bucket. Every call evaluates all of them. A limit takes 15 bytes
    /// in Redis and 16 bytes in process. Up to four limits are decided without an allocation.
    pub const MAX_PER_BUCKET: usize = 16;

    /// Returns a limit of `capacity` tokens, refilled within `refill_every`, which is rounded up to whole
    /// microseconds.
    pub fn new(capacity: u64, refill_every: Duration) -> Result<Self, TrypemaError> {
        if capacity == 0 || capacity > MAX_EXACT {
            return Err(TrypemaError::InvalidLimit { given: capacity, max: MAX_EXACT });
        }
        let refill_us = window_micros(refill_every)?;
        let divisor = gcd(capacity, refill_us);
        let (unit, drain) = (refill_us / divisor, capacity / divisor);
        let full = capacity.checked_mul(unit).filter(|full| *full <= MAX_EXACT);
        let full = full.ok_or(TrypemaError::InexactTokenLimit { capacity, refill_every })?;
        Ok(Self { capacity, refill_us, unit, drain, full, rate: Rate::new(unit, drain) })
    }

    /// Returns the number of tokens in a full bucket.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the time in which an empty bucket becomes full.
    pub fn refill_every(&self) -> Duration {
        Duration::from_micros(self.refill_us)
    }

    /// Returns the units of `tokens`, which are at most the capacity.
    #[inline]
    pub(super) fn units(&self, tokens: u64) -> u64 {
        tokens * self.unit
    }

    /// Returns the units of any number of tokens, at most [`MAX_EXACT`].
    #[inline]
    pub(super) fn units_of_any(&self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.unit).min(MAX_EXACT)
    }

    /// Returns the part of `owed` that is left after `elapsed_us`.
    #[inline]
    pub(super) fn drained(&self, owed: u64, elapsed_us: u64) -> u64 {
        owed.saturating_sub(elapsed_us.saturating_mul(self.drain))
    }

    /// Whether a bucket that owes `owed` has `cost` tokens.
    #[inline]
    pub(super) fn has(&self, owed: u64, cost: u64) -> bool {
        cost <= self.capacity && owed + self.units(cost) <= self.full
    }

    /// Returns the time until a bucket that owes `owed` has `cost` tokens, in microseconds.
    #[inline]
    pub(crate) fn wait_us(&self, owed: u64, cost: u64) -> u64 {
        let short = (owed + self.units(cost.min(self.capacity))).saturating_sub(self.full);
        short.div_ceil(self.drain)
    }

    /// Returns the time until a debt of `owed` is paid off, in microseconds.
    pub(crate) fn paid_within_us(&self, owed: u64) -> u64 {
        owed.div_ceil(self.drain)
    }

    /// Returns the whole tokens left in a bucket that owes `owed`.
    #[inline]
    pub(crate) fn left(&self, owed: u64) -> u64 {
        self.full.saturating_sub(owed) / self.unit
    }

    /// Returns the tokens left in a bucket that owes `owed`, with fractions.
    #[inline]
    pub(crate) fn balance(&self, owed: u64) -> f64 {
        self.full.saturating_sub(owed) as f64 / self.unit as f64
    }
}

/// The limits of one bucket. A call is admitted only if all of them have its cost.
///
/// ```
/// use std::time::Duration;
/// use trypema::{TokenBucketLimits, TokenLimit};
///
/// let limits = TokenBucketLimits::new([
///     TokenLimit::new(10, Duration::from_secs(1))?,
///     TokenLimit::new(100, Duration::from_secs(60))?,
/// ])?;
/// assert_eq!(limits.as_slice().len(), 2);
/// assert!(TokenBucketLimits::new([]).is_err());
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBucketLimits {
    limits: Box<[TokenLimit]>,
    retention_us: u64,
}

impl TokenBucketLimits {
    /// Returns a bucket of one to [`TokenLimit::MAX_PER_BUCKET`] limits.
    pub fn new(limits: impl IntoIterator<Item = TokenLimit>) -> Result<Self, TrypemaError> {
        let limits: Box<[TokenLimit]> = limits.into_iter().collect();
        if limits.is_empty() || limits.len() > TokenLimit::MAX_PER_BUCKET {
            let max = TokenLimit::MAX_PER_BUCKET;
            return Err(TrypemaError::InvalidLimitCount { given: limits.len(), max });
        }
        let retention_us = limits.iter().map(|limit| limit.refill_us).max().unwrap_or(0);
        Ok(Self { limits, retention_us })
    }

    /// Returns the limits, in their order.
    #[inline]
    pub fn as_slice(&self) -> &[TokenLimit] {
        &self.limits
    }

    /// Returns the refill time of the limit with the smallest capacity.
    pub(in crate::strategy) fn window(&self) -> Duration {
        let smallest = self.limits.iter().min_by_key(|limit| limit.capacity());
        smallest.map(|limit| limit.refill_every()).unwrap_or_default()
    }

    /// Returns the longest refill time of any limit.
    #[inline]
    pub(super) fn retention_us(&self) -> u64 {
        self.retention_us
    }
}

impl From<TokenLimit> for TokenBucketLimits {
    fn from(limit: TokenLimit) -> Self {
        Self { retention_us: limit.refill_us, limits: Box::new([limit]) }
    }
}

/// A limit's `unit` and `drain` in one word. Their product is below 2^53, so together they take at most 54
/// bits. The upper six bits hold the number of bits of `drain`. The bit below them marks an overdrawn debt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate(NonZeroU64);

impl Rate {
    const WIDTH_SHIFT: u32 = 58;
    const OVERDRAWN: u64 = 1 << 57;

    fn new(unit: u64, drain: u64) -> Self {
        let width = u64::BITS - drain.leading_zeros();
        let word = u64::from(width) << Self::WIDTH_SHIFT | unit << width | drain;
        Self(NonZeroU64::new(word).unwrap_or(NonZeroU64::MIN))
    }

    pub(super) const fn one() -> Self {
        // One unit per token and per microsecond.
        match NonZeroU64::new(1 << Self::WIDTH_SHIFT | 0b11) {
            Some(word) => Self(word),
            None => Self(NonZeroU64::MIN),
        }
    }

    pub(super) fn unit(self) -> u64 {
        (self.0.get() & (Self::OVERDRAWN - 1)) >> self.width()
    }

    pub(super) fn drain(self) -> u64 {
        self.0.get() & ((1 << self.width()) - 1)
    }

    /// Returns the rate of a debt that overdraws the limit. It differs from that of any limit.
    pub(super) fn overdrawn(self) -> Self {
        Self(self.0 | Self::OVERDRAWN)
    }

    /// Returns the rate of the limit that a debt is to.
    #[inline(always)]
    pub(super) fn not_overdrawn(self) -> Self {
        Self(NonZeroU64::new(self.0.get() & !Self::OVERDRAWN).unwrap_or(self.0))
    }

    pub(super) fn is_overdrawn(self) -> bool {
        self.0.get() & Self::OVERDRAWN != 0
    }

    fn width(self) -> u32 {
        (self.0.get() >> Self::WIDTH_SHIFT) as u32
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_survive_packing() {
        for (capacity, micros) in
            [(1, 1), (10, 1_000_000), (7, 86_400_000_000), (1 << 44, 1 << 44), (3, 1 << 44)]
        {
            let limit =
                TokenLimit::new(capacity, Duration::from_micros(micros)).unwrap_or_else(|e| panic!("{e}"));
            for rate in [limit.rate, limit.rate.overdrawn()] {
                assert_eq!((rate.unit(), rate.drain()), (limit.unit, limit.drain));
            }
            assert!(limit.rate.overdrawn().is_overdrawn() && !limit.rate.is_overdrawn());
        }
        assert_eq!((Rate::one().unit(), Rate::one().drain()), (1, 1));
    }

    #[test]
    fn what_cannot_be_exact_is_refused() {
        let error = TokenLimit::new((1 << 40) + 1, Duration::from_secs(86_400)).unwrap_err();
        assert!(matches!(error, TrypemaError::InexactTokenLimit { .. }), "{error}");
    }
}
