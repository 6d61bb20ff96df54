//! Limits of random fleets.

use std::time::Duration;

use trypema::strategy::{
    Absolute, AbsoluteLimit, Concurrency, ConcurrencyLimit, FixedWindow, FixedWindowLimit, SlidingWindow,
    SlidingWindowLimit, Suppressed, SuppressedLimit, TokenBucket, TokenBucketLimits, TokenLimit,
};
use trypema::{HardLimitFactor, RateGroupSizeMs, TrypemaError};

use crate::random::Random;
use crate::simulator::fleet::Legal;

/// A strategy with random limits.
pub(super) trait Drawn: Legal {
    /// Returns a limit for each of `capacities` per `window_us`. They differ only in their capacity.
    fn drawn(capacities: [u64; 2], window_us: u64, random: &mut Random) -> Vec<Self::Limit> {
        let seed = random.next_u64();
        let limit = |capacity| Self::limit(capacity, window_us, &mut Random::seeded(seed));
        // An invalid limit is left out: then no fault can change the limit.
        capacities.into_iter().filter_map(|capacity| limit(capacity).ok()).collect()
    }

    fn limit(capacity: u64, window_us: u64, random: &mut Random) -> Result<Self::Limit, TrypemaError>;
}

impl Drawn for Absolute {
    fn limit(capacity: u64, window_us: u64, random: &mut Random) -> Result<AbsoluteLimit, TrypemaError> {
        let group = RateGroupSizeMs::try_from(random.pick(&[1, 10, 100]))?;
        Ok(AbsoluteLimit::per_window(capacity, Duration::from_micros(window_us))?.grouped(group))
    }
}

impl Drawn for Suppressed {
    fn limit(capacity: u64, window_us: u64, random: &mut Random) -> Result<SuppressedLimit, TrypemaError> {
        let window = Absolute::limit(capacity, window_us, random)?;
        let factor = HardLimitFactor::try_from(random.pick(&[1.0, 1.5, 2.0, 3.0]))?;
        Ok(SuppressedLimit::above(window, factor))
    }
}

impl Drawn for TokenBucket {
    fn limit(capacity: u64, window_us: u64, random: &mut Random) -> Result<TokenBucketLimits, TrypemaError> {
        let limit = |capacity, refill_us| TokenLimit::new(capacity, Duration::from_micros(refill_us));
        let whole = limit(capacity, window_us)?;
        match random.below(3) {
            0 => TokenBucketLimits::new([whole]),
            1 => TokenBucketLimits::new([limit(capacity / 3 + 1, window_us / 4)?, whole]),
            _ => TokenBucketLimits::new([whole, limit(3 * capacity, 5 * window_us)?]),
        }
    }
}

impl Drawn for FixedWindow {
    fn limit(capacity: u64, window_us: u64, _: &mut Random) -> Result<FixedWindowLimit, TrypemaError> {
        FixedWindowLimit::new(capacity, Duration::from_micros(window_us))
    }
}

impl Drawn for SlidingWindow {
    fn limit(capacity: u64, window_us: u64, _: &mut Random) -> Result<SlidingWindowLimit, TrypemaError> {
        SlidingWindowLimit::new(capacity, Duration::from_micros(window_us))
    }
}

impl Drawn for Concurrency {
    fn limit(capacity: u64, window_us: u64, _: &mut Random) -> Result<ConcurrencyLimit, TrypemaError> {
        ConcurrencyLimit::new(capacity, Duration::from_micros(window_us))
    }
}
