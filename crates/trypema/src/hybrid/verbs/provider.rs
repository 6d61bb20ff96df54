//! `rl.hybrid()`: the seven strategies, shared through Redis and decided in this process.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::compat::{AbsoluteHybridRateLimiter, SuppressedHybridRateLimiter};
use super::limiter::HybridLimiter;
use crate::clock::ClockSource;
use crate::error::TrypemaError;
use crate::hybrid::background::{self, Background, Instance, Shared};
use crate::redis::{MissingPermission, RedisRateLimiterProvider, WindowOptions};
use crate::strategy::{Abuse, Concurrency, FixedWindow, SlidingWindow, TokenBucket};

/// The limiters of all strategies, shared through Redis, and decided in this process when it holds a lease.
#[derive(Debug)]
pub struct HybridRateLimiterProvider {
    background: Arc<Background>,
    pub(super) redis: RedisRateLimiterProvider,
    pub(super) absolute: AbsoluteHybridRateLimiter,
    pub(super) suppressed: SuppressedHybridRateLimiter,
    pub(super) token_bucket: HybridLimiter<TokenBucket>,
    pub(super) sliding_window: HybridLimiter<SlidingWindow>,
    pub(super) fixed_window: HybridLimiter<FixedWindow>,
    pub(super) abuse: HybridLimiter<Abuse>,
    pub(super) concurrency: HybridLimiter<Concurrency>,
}

/// The configuration of a hybrid provider.
#[derive(Debug)]
pub(crate) struct HybridOptions {
    pub(crate) clock: ClockSource,
    pub(crate) sync_interval: Duration,
    /// The window and related settings of `inc`.
    pub(crate) windows: WindowOptions,
}

/// The state of the hybrid provider, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HybridStats {
    /// The units of all keys that this instance has leased and not spent. They already count against their
    /// limits.
    pub held_units: u64,
    /// The number of live instances, if a heartbeat of
    /// [`keep_in_sync`](HybridRateLimiterProvider::keep_in_sync) has reported it.
    pub instances: Option<NonZeroU32>,
    /// The number of lease requests that were sent to Redis since the start.
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
        let concurrency = Shared::new(redis.concurrency().clone(), &instance);
        Self {
            absolute: AbsoluteHybridRateLimiter::new(HybridLimiter::of(&absolute), windows),
            suppressed: SuppressedHybridRateLimiter::new(HybridLimiter::of(&suppressed), windows),
            token_bucket: HybridLimiter::of(&token_bucket),
            sliding_window: HybridLimiter::of(&sliding_window),
            fixed_window: HybridLimiter::of(&fixed_window),
            abuse: HybridLimiter::of(&abuse),
            concurrency: HybridLimiter::of(&concurrency),
            redis: redis.clone(),
            background: Arc::new(Background {
                instance,
                redis: redis.clone(),
                strategies: [
                    absolute,
                    suppressed,
                    token_bucket,
                    sliding_window,
                    fixed_window,
                    abuse,
                    concurrency,
                ],
            }),
        }
    }

    /// Returns the permissions that the Redis user lacks for this provider. If none is missing, no verb fails
    /// for lack of a permission.
    ///
    /// Runs each command that this version needs once, on every server, on a key of its own under the prefix,
    /// which is removed again. Call this when a process starts: it takes a few round trips. A permission that is
    /// optional ([`MissingPermission::is_optional`]) is only for a check: of the server's version, or its role.
    ///
    /// ```no_run
    /// # async fn example(rl: &trypema::RateLimiter) -> Result<(), trypema::TrypemaError> {
    /// for missing in rl.hybrid().missing_permissions().await? {
    ///     eprintln!("the Redis user lacks {missing}"); // "+zadd on 127.0.0.1:6379"
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`TrypemaError::RedisError`] if a server does not answer, or refuses the login.
    pub async fn missing_permissions(&self) -> Result<Vec<MissingPermission>, TrypemaError> {
        Ok(self.redis.probe_permissions(true).await?)
    }

    /// Returns the limiter of sliding windows with strict limits.
    pub fn absolute(&self) -> &AbsoluteHybridRateLimiter {
        &self.absolute
    }

    /// Returns the limiter of sliding windows that shed load gradually.
    pub fn suppressed(&self) -> &SuppressedHybridRateLimiter {
        &self.suppressed
    }

    /// Returns the limiter of token buckets with one or more limits.
    pub fn token_bucket(&self) -> &HybridLimiter<TokenBucket> {
        &self.token_bucket
    }

    /// Returns the limiter of sliding-window counters.
    pub fn sliding_window(&self) -> &HybridLimiter<SlidingWindow> {
        &self.sliding_window
    }

    /// Returns the limiter of fixed windows.
    pub fn fixed_window(&self) -> &HybridLimiter<FixedWindow> {
        &self.fixed_window
    }

    /// Returns the limiter of attempts, which blocks keys that exceed their limits. Redis counts every
    /// attempt; instances remember blocks.
    pub fn abuse(&self) -> &HybridLimiter<Abuse> {
        &self.abuse
    }

    /// Returns the limiter of units that are held at the same time. Redis takes every unit: nothing is
    /// leased or remembered.
    pub fn concurrency(&self) -> &HybridLimiter<Concurrency> {
        &self.concurrency
    }

    /// Returns the background work as a future. Spawn it on the async runtime once for each
    /// [`RateLimiter`](crate::RateLimiter); it ends when the `RateLimiter` is dropped. It renews leases
    /// before they run out, returns the unspent units of ended leases, and counts the live instances.
    ///
    /// Limits are correct without it. But then calls wait for Redis whenever a lease has run out, and
    /// unspent units are returned only with the next lease request for their key.
    pub fn keep_in_sync(&self) -> impl Future<Output = ()> + Send + use<> {
        background::run(Arc::downgrade(&self.background), Arc::clone(&self.background.instance))
    }

    /// Returns all held units to Redis. Call this when an instance stops, after its last request. Waits for
    /// lease requests in progress. If Redis does not answer, each step takes up to the deadline of a call,
    /// and units that cannot be returned stay counted until they leave the window.
    pub async fn release(&self) {
        self.background.release().await;
    }

    /// Returns the current state. Visits every held key, so call it for metrics, not for every request.
    pub fn stats(&self) -> HybridStats {
        HybridStats {
            held_units: self.background.strategies.iter().map(|keys| keys.held()).sum(),
            instances: self.redis.instances(),
            leases_asked: self.background.instance.leases_asked(),
        }
    }
}
