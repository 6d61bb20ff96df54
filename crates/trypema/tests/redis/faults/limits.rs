//! The same limit for every strategy.

use std::time::Duration;

use trypema::redis::RedisLimiter;
use trypema::strategy::Wire;
use trypema::{
    AbsoluteLimit, AbuseLimit, AbuseTier, FixedWindowLimit, HardLimitFactor, Limit, RateGroupSizeMs,
    RateLimit, RateLimiter, SlidingWindowLimit, SuppressedLimit, TokenBucketLimits, TokenLimit,
    WindowSizeSeconds,
};

/// The capacity of a window.
pub(crate) const CAPACITY: u64 = 8;

/// The window does not end during a test.
const WINDOW: Duration = Duration::from_secs(100 * 86_400);

/// A property that holds for every strategy.
pub(crate) trait Claim {
    fn holds_for<S: Wire>(&self, limiter: &RedisLimiter<S>, limit: &S::Limit)
    where
        Limit: From<S::Limit>;
}

/// Checks `claim` for the six strategies of `rl`.
pub(crate) fn for_every_strategy(rl: &RateLimiter, claim: &impl Claim) {
    let redis = rl.redis();
    let window = WindowSizeSeconds::try_from(WINDOW.as_secs()).unwrap();
    let group = RateGroupSizeMs::try_from(10).unwrap();
    let rate = RateLimit::try_from(CAPACITY as f64 / WINDOW.as_secs_f64()).unwrap();
    let tier = AbuseTier::new(WINDOW, CAPACITY + 1, WINDOW).unwrap();

    claim.holds_for(redis.absolute(), &AbsoluteLimit::new(rate, window, group));
    claim.holds_for(
        redis.suppressed(),
        &SuppressedLimit::new(rate, window, group, HardLimitFactor::default()),
    );
    claim.holds_for(
        redis.token_bucket(),
        &TokenBucketLimits::from(TokenLimit::new(CAPACITY, WINDOW).unwrap()),
    );
    claim.holds_for(redis.sliding_window(), &SlidingWindowLimit::new(CAPACITY, WINDOW).unwrap());
    claim.holds_for(redis.fixed_window(), &FixedWindowLimit::new(CAPACITY, WINDOW).unwrap());
    claim.holds_for(redis.abuse(), &AbuseLimit::new(tier, tier));
}
