//! The strategies on the shared providers, with limits of one shape.
#![allow(clippy::unwrap_used, reason = "a test that makes an invalid limit should stop right there")]

use std::time::Duration;

use trypema::strategy::{
    Absolute, Abuse, Concurrency, FixedWindow, Leasable, SlidingWindow, Suppressed, TokenBucket,
};
use trypema::{
    AbsoluteLimit, AbuseLimit, AbuseTier, ConcurrencyLimit, FixedWindowLimit, HardLimitFactor,
    RateGroupSizeMs, RateLimit, RateLimiter, SlidingWindowLimit, SuppressedLimit, TokenBucketLimits,
    TokenLimit, WindowSizeSeconds,
};
use trypema::{hybrid, redis};

/// The time within which calls of absolute limits share a bucket.
const GROUP_MS: u64 = 10;

/// A strategy that runs in Redis, and of which instances may hold leases.
pub trait HybridStrategy: Leasable + Sync {
    /// Returns its limiter of the hybrid provider.
    fn hybrid(limits: &RateLimiter) -> &hybrid::HybridLimiter<Self>;

    /// Returns its limiter of the Redis provider.
    fn redis(limits: &RateLimiter) -> &redis::RedisLimiter<Self>;

    /// Returns a limit of `capacity` units per `window`. Windows of absolute and suppressed limits have to
    /// be whole seconds.
    fn limit(capacity: u64, window: Duration) -> Self::Limit;
}

impl HybridStrategy for Absolute {
    fn hybrid(limits: &RateLimiter) -> &hybrid::HybridLimiter<Self> {
        limits.hybrid().absolute()
    }

    fn redis(limits: &RateLimiter) -> &redis::RedisLimiter<Self> {
        limits.redis().absolute()
    }

    fn limit(capacity: u64, window: Duration) -> AbsoluteLimit {
        let (rate, window) = rate_of(capacity, window);
        AbsoluteLimit::new(rate, window, RateGroupSizeMs::try_from(GROUP_MS).unwrap())
    }
}

impl HybridStrategy for Suppressed {
    fn hybrid(limits: &RateLimiter) -> &hybrid::HybridLimiter<Self> {
        limits.hybrid().suppressed()
    }

    fn redis(limits: &RateLimiter) -> &redis::RedisLimiter<Self> {
        limits.redis().suppressed()
    }

    fn limit(capacity: u64, window: Duration) -> SuppressedLimit {
        let (rate, window) = rate_of(capacity, window);
        let group = RateGroupSizeMs::try_from(GROUP_MS).unwrap();
        SuppressedLimit::new(rate, window, group, HardLimitFactor::default())
    }
}

impl HybridStrategy for TokenBucket {
    fn hybrid(limits: &RateLimiter) -> &hybrid::HybridLimiter<Self> {
        limits.hybrid().token_bucket()
    }

    fn redis(limits: &RateLimiter) -> &redis::RedisLimiter<Self> {
        limits.redis().token_bucket()
    }

    fn limit(capacity: u64, window: Duration) -> TokenBucketLimits {
        TokenBucketLimits::from(TokenLimit::new(capacity, window).unwrap())
    }
}

impl HybridStrategy for SlidingWindow {
    fn hybrid(limits: &RateLimiter) -> &hybrid::HybridLimiter<Self> {
        limits.hybrid().sliding_window()
    }

    fn redis(limits: &RateLimiter) -> &redis::RedisLimiter<Self> {
        limits.redis().sliding_window()
    }

    fn limit(capacity: u64, window: Duration) -> SlidingWindowLimit {
        SlidingWindowLimit::new(capacity, window).unwrap()
    }
}

impl HybridStrategy for FixedWindow {
    fn hybrid(limits: &RateLimiter) -> &hybrid::HybridLimiter<Self> {
        limits.hybrid().fixed_window()
    }

    fn redis(limits: &RateLimiter) -> &redis::RedisLimiter<Self> {
        limits.redis().fixed_window()
    }

    fn limit(capacity: u64, window: Duration) -> FixedWindowLimit {
        FixedWindowLimit::new(capacity, window).unwrap()
    }
}

/// An attempt beyond the capacity is blocked for one window.
impl HybridStrategy for Abuse {
    fn hybrid(limits: &RateLimiter) -> &hybrid::HybridLimiter<Self> {
        limits.hybrid().abuse()
    }

    fn redis(limits: &RateLimiter) -> &redis::RedisLimiter<Self> {
        limits.redis().abuse()
    }

    fn limit(capacity: u64, window: Duration) -> AbuseLimit {
        let tier = AbuseTier::new(window, capacity + 1, window).unwrap();
        AbuseLimit::new(tier, tier)
    }
}

/// Units are held for one window, unless they are released sooner.
impl HybridStrategy for Concurrency {
    fn hybrid(limits: &RateLimiter) -> &hybrid::HybridLimiter<Self> {
        limits.hybrid().concurrency()
    }

    fn redis(limits: &RateLimiter) -> &redis::RedisLimiter<Self> {
        limits.redis().concurrency()
    }

    fn limit(capacity: u64, window: Duration) -> ConcurrencyLimit {
        ConcurrencyLimit::new(capacity, window).unwrap()
    }
}

fn rate_of(capacity: u64, window: Duration) -> (RateLimit, WindowSizeSeconds) {
    let rate = RateLimit::try_from(capacity as f64 / window.as_secs_f64()).unwrap();
    (rate, WindowSizeSeconds::try_from(window.as_secs()).unwrap())
}
