//! The seven strategies, each with a limit of the same size.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::time::Duration;

use trypema::redis::RedisLimiter;
use trypema::strategy::{
    Absolute, Abuse, Concurrency, FixedWindow, SlidingWindow, Suppressed, TokenBucket, Wire,
};
use trypema::{
    AbsoluteLimit, AbuseLimit, AbuseTier, ConcurrencyLimit, FixedWindowLimit, HardLimitFactor,
    RateGroupSizeMs, RateLimit, RateLimiter, SlidingWindowLimit, SuppressedLimit, TokenBucketLimits,
    TokenLimit, WindowSizeSeconds,
};

/// One limit of each strategy.
pub(crate) struct Limits {
    pub(crate) absolute: AbsoluteLimit,
    pub(crate) suppressed: SuppressedLimit,
    pub(crate) token_bucket: TokenBucketLimits,
    pub(crate) sliding_window: SlidingWindowLimit,
    pub(crate) fixed_window: FixedWindowLimit,
    pub(crate) abuse: AbuseLimit,
    pub(crate) concurrency: ConcurrencyLimit,
}

/// The longest hold of a concurrency limit.
const LONGEST_HOLD: Duration = Duration::from_secs(3_600);

impl Limits {
    /// Limits that admit `capacity` units per `window`. The windows of absolute and suppressed are whole
    /// seconds. Units of a concurrency limit are held for an hour at most.
    pub(crate) fn of(capacity: u64, window: Duration) -> Self {
        let seconds = window.as_secs().max(1);
        let rate = RateLimit::try_from(capacity as f64 / seconds as f64).unwrap();
        let (whole, group) =
            (WindowSizeSeconds::try_from(seconds).unwrap(), RateGroupSizeMs::try_from(10).unwrap());
        let tier = |spare| AbuseTier::new(window, capacity + spare, window).unwrap();
        Self {
            absolute: AbsoluteLimit::new(rate, whole, group),
            suppressed: SuppressedLimit::new(rate, whole, group, HardLimitFactor::default()),
            token_bucket: TokenBucketLimits::from(TokenLimit::new(capacity, window).unwrap()),
            sliding_window: SlidingWindowLimit::new(capacity, window).unwrap(),
            fixed_window: FixedWindowLimit::new(capacity, window).unwrap(),
            abuse: AbuseLimit::new(tier(1), tier(5)),
            concurrency: ConcurrencyLimit::new(capacity, window.min(LONGEST_HOLD)).unwrap(),
        }
    }
}

/// An action on one strategy.
pub(crate) trait Visit {
    fn visit<S: Wire + Sync>(&mut self, limiter: &RedisLimiter<S>, limit: &S::Limit);
}

/// Calls `visitor` with every strategy.
pub(crate) fn each(rl: &RateLimiter, limits: &Limits, visitor: &mut impl Visit) {
    let redis = rl.redis();
    visitor.visit::<Absolute>(redis.absolute(), &limits.absolute);
    visitor.visit::<Suppressed>(redis.suppressed(), &limits.suppressed);
    visitor.visit::<TokenBucket>(redis.token_bucket(), &limits.token_bucket);
    visitor.visit::<SlidingWindow>(redis.sliding_window(), &limits.sliding_window);
    visitor.visit::<FixedWindow>(redis.fixed_window(), &limits.fixed_window);
    visitor.visit::<Abuse>(redis.abuse(), &limits.abuse);
    visitor.visit::<Concurrency>(redis.concurrency(), &limits.concurrency);
}
