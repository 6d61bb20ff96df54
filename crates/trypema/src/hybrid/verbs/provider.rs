//! `rl.hybrid()`: the six strategies, shared through Redis and decided here.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::limiter::Limiter;
use super::seeds::{AbsoluteHybridRateLimiter, SuppressedHybridRateLimiter};
use crate::clock::Source;
use crate::hybrid::background::{self, Background, Instance, Shared};
use crate::redis::{RedisRateLimiterProvider, Windows};
use crate::strategy::{Abuse, FixedWindow, SlidingWindow, TokenBucket};

/// The strategies that are shared through Redis and decided in this process where it holds a lease.
#[derive(Debug)]
pub struct HybridRateLimiterProvider {
    background: Arc<Background>,
    pub(super) redis: RedisRateLimiterProvider,
    pub(super) absolute: AbsoluteHybridRateLimiter,
    pub(super) suppressed: SuppressedHybridRateLimiter,
    pub(super) token_bucket: Limiter<TokenBucket>,
    pub(super) sliding_window: Limiter<SlidingWindow>,
    pub(super) fixed_window: Limiter<FixedWindow>,
    pub(super) abuse: Limiter<Abuse>,
}

/// What a hybrid provider is made with.
#[derive(Debug)]
pub(crate) struct HybridOptions {
    pub(crate) clock: Source,
    pub(crate) sync_interval: Duration,
    /// What `inc` counts in.
    pub(crate) windows: Windows,
}

/// What the hybrid provider is doing, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HybridStats {
    /// Units of all keys that this instance holds: counted by everyone, and not spent yet.
    pub held_units: u64,
    /// How many instances there are, if [`keep_in_sync`](HybridRateLimiterProvider::keep_in_sync) has learned it.
    pub instances: Option<NonZeroU32>,
    /// How often Redis was asked for a lease since the start.
    pub leases_asked: u64,
}

impl HybridRateLimiterProvider {
    pub(crate) fn new(redis: &RedisRateLimiterProvider, options: HybridOptions) -> Self {
        let HybridOptions { clock, sync_interval, windows } = options;
        let instance = Arc::new(Instance::new(clock, sync_interval));
        let absolute = Shared::new((**redis.absolute()).clone(), &instance);
        let suppressed = Shared::new((**redis.suppressed()).clone(), &instance);
        let token_bucket = Shared::new(redis.token_bucket().clone(), &instance);
        let sliding_window = Shared::new(redis.sliding_window().clone(), &instance);
        let fixed_window = Shared::new(redis.fixed_window().clone(), &instance);
        let abuse = Shared::new(redis.abuse().clone(), &instance);
        Self {
            absolute: AbsoluteHybridRateLimiter::new(Limiter::of(&absolute), windows),
            suppressed: SuppressedHybridRateLimiter::new(Limiter::of(&suppressed), windows),
            token_bucket: Limiter::of(&token_bucket),
            sliding_window: Limiter::of(&sliding_window),
            fixed_window: Limiter::of(&fixed_window),
            abuse: Limiter::of(&abuse),
            redis: redis.clone(),
            background: Arc::new(Background {
                instance,
                redis: redis.clone(),
                strategies: [absolute, suppressed, token_bucket, sliding_window, fixed_window, abuse],
            }),
        }
    }

    /// Sliding windows with strict limits.
    pub fn absolute(&self) -> &AbsoluteHybridRateLimiter {
        &self.absolute
    }

    /// Sliding windows that shed load by degrees.
    pub fn suppressed(&self) -> &SuppressedHybridRateLimiter {
        &self.suppressed
    }

    /// Token buckets with one or more limits.
    pub fn token_bucket(&self) -> &Limiter<TokenBucket> {
        &self.token_bucket
    }

    /// Sliding-window counters.
    pub fn sliding_window(&self) -> &Limiter<SlidingWindow> {
        &self.sliding_window
    }

    /// Fixed windows.
    pub fn fixed_window(&self) -> &Limiter<FixedWindow> {
        &self.fixed_window
    }

    /// Attempt limits with blocks. Every attempt is counted in Redis; a block is remembered.
    pub fn abuse(&self) -> &Limiter<Abuse> {
        &self.abuse
    }

    /// The background work: to be spawned on the async runtime, once for a [`RateLimiter`](crate::RateLimiter), which it
    /// ends with. It asks for leases before they run out, gives back what is left of those that have ended, and learns how
    /// many instances there are.
    ///
    /// Limits are correct without it; but then calls wait for Redis whenever a lease has run out, and what is left of one
    /// is given back only with the next call for its key.
    pub fn keep_in_sync(&self) -> impl Future<Output = ()> + Send + use<> {
        background::run(Arc::downgrade(&self.background), Arc::clone(&self.background.instance))
    }

    /// Gives back everything that is held: to be called when an instance stops, after its last request. Waits for leases that
    /// are under way. Where Redis does not answer, each step takes as long as the deadline of a call, and what cannot be given back
    /// stays counted until it leaves by itself.
    pub async fn release(&self) {
        self.background.release().await;
    }

    /// What it is doing now. Looks at every key that is held, so it is for metrics and not for every call.
    pub fn stats(&self) -> HybridStats {
        HybridStats {
            held_units: self.background.strategies.iter().map(|keys| keys.held()).sum(),
            instances: self.redis.instances(),
            leases_asked: self.background.instance.leases_asked(),
        }
    }
}
