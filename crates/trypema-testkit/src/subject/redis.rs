//! The Redis provider as a subject.
#![allow(clippy::unwrap_used, reason = "a test that cannot make its limiter should stop right there")]

use std::sync::Arc;

use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::redis::{RedisConnection, RedisLimiter, RedisReceipt};
use trypema::strategy::{
    Absolute, Abuse, Concurrency, FixedWindow, SlidingWindow, Suppressed, TokenBucket, Wire,
};

use super::library::{LibrarySubject, Provides};
use super::local::LocalStrategy;
use crate::blocking::{self, Blocking};
use crate::model::{
    AbsoluteModel, AbuseModel, CalendarModel, ConcurrencyModel, FixedWindowModel, SlidingWindowModel,
    SuppressedModel, TokenBucketModel,
};

/// A model whose strategy the library has in Redis.
pub trait RedisStrategy: LocalStrategy<Strategy: Wire> {
    /// Returns the library's Redis limiter of the strategy.
    fn redis_limiter(limits: &RateLimiter) -> &RedisLimiter<Self::Strategy>;
}

/// The Redis limiters of a strategy.
#[derive(Debug)]
pub struct OnRedis<M> {
    limits: RateLimiter,
    strategy: std::marker::PhantomData<M>,
}

/// A subject with its own limiter, clock and keys.
pub type RedisSubject<M> = LibrarySubject<M, OnRedis<M>>;

impl<M: RedisStrategy> RedisSubject<M> {
    /// Creates a subject on `connection` whose keys start with `prefix`.
    pub fn on(connection: &RedisConnection, prefix: &str) -> Self {
        let clock = Arc::new(ManualClock::default());
        let limits = blocking::limiter(connection, prefix, &clock).build().unwrap();
        Self::new(clock, OnRedis { limits, strategy: std::marker::PhantomData })
    }
}

impl<M: RedisStrategy> Provides<M> for OnRedis<M> {
    type Receipt = RedisReceipt;
    type Verbs<'a>
        = Blocking<'a, M::Strategy>
    where
        M: 'a;

    fn verbs(&self) -> Blocking<'_, M::Strategy> {
        Blocking(M::redis_limiter(&self.limits))
    }
}

impl RedisStrategy for AbsoluteModel {
    fn redis_limiter(limits: &RateLimiter) -> &RedisLimiter<Absolute> {
        limits.redis().absolute()
    }
}

impl RedisStrategy for SuppressedModel {
    fn redis_limiter(limits: &RateLimiter) -> &RedisLimiter<Suppressed> {
        limits.redis().suppressed()
    }
}

impl RedisStrategy for TokenBucketModel {
    fn redis_limiter(limits: &RateLimiter) -> &RedisLimiter<TokenBucket> {
        limits.redis().token_bucket()
    }
}

impl RedisStrategy for SlidingWindowModel {
    fn redis_limiter(limits: &RateLimiter) -> &RedisLimiter<SlidingWindow> {
        limits.redis().sliding_window()
    }
}

impl RedisStrategy for FixedWindowModel {
    fn redis_limiter(limits: &RateLimiter) -> &RedisLimiter<FixedWindow> {
        limits.redis().fixed_window()
    }
}

impl RedisStrategy for CalendarModel {
    fn redis_limiter(limits: &RateLimiter) -> &RedisLimiter<FixedWindow> {
        limits.redis().fixed_window()
    }
}

impl RedisStrategy for AbuseModel {
    fn redis_limiter(limits: &RateLimiter) -> &RedisLimiter<Abuse> {
        limits.redis().abuse()
    }
}

impl RedisStrategy for ConcurrencyModel {
    fn redis_limiter(limits: &RateLimiter) -> &RedisLimiter<Concurrency> {
        limits.redis().concurrency()
    }
}
