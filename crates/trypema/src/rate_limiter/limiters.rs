//! The limiter of each strategy on each provider, by name.

#[cfg(feature = "_redis")]
use crate::hybrid::{HybridLimiter, HybridRateLimiterProvider};
use crate::local::{LocalLimiter, LocalRateLimiterProvider};
#[cfg(feature = "_redis")]
use crate::redis::{RedisLimiter, RedisRateLimiterProvider};
use crate::strategy::{Absolute, Abuse, Concurrency, FixedWindow, SlidingWindow, Suppressed, TokenBucket};

impl LocalRateLimiterProvider {
    /// Returns the limiter of sliding windows with strict limits.
    #[inline]
    pub fn absolute(&self) -> &LocalLimiter<Absolute> {
        self.limiter()
    }

    /// Returns the limiter of sliding windows that deny a growing share of the calls above their limits.
    #[inline]
    pub fn suppressed(&self) -> &LocalLimiter<Suppressed> {
        self.limiter()
    }

    /// Returns the limiter of token buckets with one or more limits.
    #[inline]
    pub fn token_bucket(&self) -> &LocalLimiter<TokenBucket> {
        self.limiter()
    }

    /// Returns the limiter of sliding-window counters.
    #[inline]
    pub fn sliding_window(&self) -> &LocalLimiter<SlidingWindow> {
        self.limiter()
    }

    /// Returns the limiter of fixed windows.
    #[inline]
    pub fn fixed_window(&self) -> &LocalLimiter<FixedWindow> {
        self.limiter()
    }

    /// Returns the limiter of attempts, which blocks keys that exceed their limits.
    #[inline]
    pub fn abuse(&self) -> &LocalLimiter<Abuse> {
        self.limiter()
    }

    /// Returns the limiter of units that are held at the same time.
    #[inline]
    pub fn concurrency(&self) -> &LocalLimiter<Concurrency> {
        self.limiter()
    }
}

#[cfg(feature = "_redis")]
impl RedisRateLimiterProvider {
    /// Returns the limiter of sliding windows with strict limits.
    pub fn absolute(&self) -> &RedisLimiter<Absolute> {
        self.limiter()
    }

    /// Returns the limiter of sliding windows that deny a growing share of the calls above their limits.
    pub fn suppressed(&self) -> &RedisLimiter<Suppressed> {
        self.limiter()
    }

    /// Returns the limiter of token buckets with one or more limits.
    pub fn token_bucket(&self) -> &RedisLimiter<TokenBucket> {
        self.limiter()
    }

    /// Returns the limiter of sliding-window counters.
    pub fn sliding_window(&self) -> &RedisLimiter<SlidingWindow> {
        self.limiter()
    }

    /// Returns the limiter of fixed windows.
    pub fn fixed_window(&self) -> &RedisLimiter<FixedWindow> {
        self.limiter()
    }

    /// Returns the limiter of attempts, which blocks keys that exceed their limits.
    pub fn abuse(&self) -> &RedisLimiter<Abuse> {
        self.limiter()
    }

    /// Returns the limiter of units that are held at the same time.
    pub fn concurrency(&self) -> &RedisLimiter<Concurrency> {
        self.limiter()
    }
}

#[cfg(feature = "_redis")]
impl HybridRateLimiterProvider {
    /// Returns the limiter of sliding windows with strict limits.
    pub fn absolute(&self) -> &HybridLimiter<Absolute> {
        self.limiter()
    }

    /// Returns the limiter of sliding windows that deny a growing share of the calls above their limits.
    pub fn suppressed(&self) -> &HybridLimiter<Suppressed> {
        self.limiter()
    }

    /// Returns the limiter of token buckets with one or more limits.
    pub fn token_bucket(&self) -> &HybridLimiter<TokenBucket> {
        self.limiter()
    }

    /// Returns the limiter of sliding-window counters.
    pub fn sliding_window(&self) -> &HybridLimiter<SlidingWindow> {
        self.limiter()
    }

    /// Returns the limiter of fixed windows.
    pub fn fixed_window(&self) -> &HybridLimiter<FixedWindow> {
        self.limiter()
    }

    /// Returns the limiter of attempts, which blocks keys that exceed their limits. Redis counts every attempt;
    /// instances remember blocks.
    pub fn abuse(&self) -> &HybridLimiter<Abuse> {
        self.limiter()
    }

    /// Returns the limiter of units that are held at the same time. Redis takes every unit: nothing is
    /// leased or remembered.
    pub fn concurrency(&self) -> &HybridLimiter<Concurrency> {
        self.limiter()
    }
}
