//! The Redis provider as a subject.
#![allow(clippy::unwrap_used, reason = "a test that cannot make its limiter should stop right there")]

use std::sync::Arc;
use std::time::Duration;

use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::hybrid::HybridLimiter;
use trypema::redis::{RedisConnection, RedisLimiter, RedisReceipt};

use super::library::{LibrarySubject, Provides};
use super::local::{LocalStrategy, Modelled};
use crate::blocking::{self, Blocking};

/// A model whose strategy the library has in Redis.
pub trait RedisStrategy: LocalStrategy {
    /// Returns the library's Redis limiter of the strategy.
    fn redis_limiter(limits: &RateLimiter) -> &RedisLimiter<Self::Strategy> {
        limits.redis().limiter()
    }
}

impl<M: LocalStrategy> RedisStrategy for M {}

/// A strategy on the shared providers, with limits of one shape.
pub trait HybridStrategy: Modelled + Sync {
    /// Returns its limiter of the hybrid provider.
    fn hybrid(limits: &RateLimiter) -> &HybridLimiter<Self> {
        limits.hybrid().limiter()
    }

    /// Returns its limiter of the Redis provider.
    fn redis(limits: &RateLimiter) -> &RedisLimiter<Self> {
        limits.redis().limiter()
    }

    /// Returns a limit of `capacity` units per `window`.
    fn limit(capacity: u64, window: Duration) -> Self::Limit {
        Self::sized(capacity, window).unwrap()
    }
}

impl<S: Modelled + Sync> HybridStrategy for S {}

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
