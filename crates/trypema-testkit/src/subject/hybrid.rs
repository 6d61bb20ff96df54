//! The strategies as they are on the providers that share, with limits of one size.
#![allow(clippy::unwrap_used, reason = "a test that makes an invalid limit should stop right there")]

use std::time::Duration;

use trypema::strategy::{Absolute, Abuse, FixedWindow, Leasable, SlidingWindow, Suppressed, TokenBucket};
use trypema::{
    AbsoluteLimit, AbuseLimit, AbuseTier, FixedWindowLimit, HardLimitFactor, RateGroupSizeMs, RateLimit,
    RateLimiter, SlidingWindowLimit, SuppressedLimit, TokenBucketLimits, TokenLimit, WindowSizeSeconds,
};
use trypema::{hybrid, redis};

/// Calls of absolute limits that are this close share a bucket.
const GROUP_MS: u64 = 10;

/// A strategy that Redis shares, and that instances may hold leases of.
pub trait HybridStrategy: Leasable + Sync {
    /// Where the hybrid provider decides it.
    fn hybrid(limits: &RateLimiter) -> &hybrid::Limiter<Self>;

    /// Where the Redis provider decides it.
    fn redis(limits: &RateLimiter) -> &redis::Limiter<Self>;

    /// A limit under which `capacity` units fit into `window`; windows of absolute and suppressed limits are whole
    /// seconds.
    fn limit(capacity: u64, window: Duration) -> Self::Limit;
}

impl HybridStrategy for Absolute {
    fn hybrid(limits: &RateLimiter) -> &hybrid::Limiter<Self> {
        limits.hybrid().absolute()
    }

    fn redis(limits: &RateLimiter) -> &redis::Limiter<Self> {
        limits.redis().absolute()
    }

    fn limit(capacity: u64, window: Duration) -> AbsoluteLimit {
        let (rate, window) = rate_of(capacity, window);
        AbsoluteLimit::new(rate, window, RateGroupSizeMs::try_from(GROUP_MS).unwrap())
    }
}

impl HybridStrategy for Suppressed {
    fn hybrid(limits: &RateLimiter) -> &hybrid::Limiter<Self> {
        limits.hybrid().suppressed()
    }

    fn redis(limits: &RateLimiter) -> &redis::Limiter<Self> {
        limits.redis().suppressed()
    }

    fn limit(capacity: u64, window: Duration) -> SuppressedLimit {
        let (rate, window) = rate_of(capacity, window);
        let group = RateGroupSizeMs::try_from(GROUP_MS).unwrap();
        SuppressedLimit::new(rate, window, group, HardLimitFactor::default())
    }
}

impl HybridStrategy for TokenBucket {
    fn hybrid(limits: &RateLimiter) -> &hybrid::Limiter<Self> {
        limits.hybrid().token_bucket()
    }

    fn redis(limits: &RateLimiter) -> &redis::Limiter<Self> {
        limits.redis().token_bucket()
    }

    fn limit(capacity: u64, window: Duration) -> TokenBucketLimits {
        TokenBucketLimits::from(TokenLimit::new(capacity, window).unwrap())
    }
}

impl HybridStrategy for SlidingWindow {
    fn hybrid(limits: &RateLimiter) -> &hybrid::Limiter<Self> {
        limits.hybrid().sliding_window()
    }

    fn redis(limits: &RateLimiter) -> &redis::Limiter<Self> {
        limits.redis().sliding_window()
    }

    fn limit(capacity: u64, window: Duration) -> SlidingWindowLimit {
        SlidingWindowLimit::new(capacity, window).unwrap()
    }
}

impl HybridStrategy for FixedWindow {
    fn hybrid(limits: &RateLimiter) -> &hybrid::Limiter<Self> {
        limits.hybrid().fixed_window()
    }

    fn redis(limits: &RateLimiter) -> &redis::Limiter<Self> {
        limits.redis().fixed_window()
    }

    fn limit(capacity: u64, window: Duration) -> FixedWindowLimit {
        FixedWindowLimit::new(capacity, window).unwrap()
    }
}

/// One more attempt than fits is blocked for a window.
impl HybridStrategy for Abuse {
    fn hybrid(limits: &RateLimiter) -> &hybrid::Limiter<Self> {
        limits.hybrid().abuse()
    }

    fn redis(limits: &RateLimiter) -> &redis::Limiter<Self> {
        limits.redis().abuse()
    }

    fn limit(capacity: u64, window: Duration) -> AbuseLimit {
        let tier = AbuseTier::new(window, capacity + 1, window).unwrap();
        AbuseLimit::new(tier, tier)
    }
}

fn rate_of(capacity: u64, window: Duration) -> (RateLimit, WindowSizeSeconds) {
    let rate = RateLimit::try_from(capacity as f64 / window.as_secs_f64()).unwrap();
    (rate, WindowSizeSeconds::try_from(window.as_secs()).unwrap())
}
