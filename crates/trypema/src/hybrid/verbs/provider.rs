//! `rl.hybrid()`: all strategies, shared through Redis and decided in this process.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::limiter::HybridLimiter;
use crate::clock::ClockSource;
use crate::error::TrypemaError;
use crate::hybrid::background::{self, Background, Instance, LeasedKeys, LimiterState};
use crate::redis::{MissingPermission, RedisRateLimiterProvider};
use crate::strategy::{Family, InCommon, Listed, Make, PerStrategy};

/// The limiters of all strategies, shared through Redis, and decided in this process when it holds a lease.
#[derive(Debug)]
pub struct HybridRateLimiterProvider {
    background: Arc<Background>,
    pub(super) redis: RedisRateLimiterProvider,
    limiters: PerStrategy<HybridLimiters>,
}

/// The limiter of each strategy.
#[derive(Debug)]
struct HybridLimiters;

impl Family for HybridLimiters {
    type Of<S: Listed> = HybridLimiter<S>;
}

impl InCommon for HybridLimiters {
    type Common<'a> = Arc<dyn LeasedKeys>;

    fn common<S: Listed>(one: &HybridLimiter<S>) -> Arc<dyn LeasedKeys> {
        Arc::clone(&one.shared) as _
    }
}

/// The instance, and the provider whose counters it leases units of.
struct Lessor<'a> {
    redis: &'a RedisRateLimiterProvider,
    instance: &'a Arc<Instance>,
}

impl Make<HybridLimiters> for Lessor<'_> {
    fn make<S: Listed>(&self) -> HybridLimiter<S> {
        HybridLimiter { shared: LimiterState::new(self.redis.limiter::<S>().clone(), self.instance) }
    }
}

/// The configuration of a hybrid provider.
#[derive(Debug)]
pub(crate) struct HybridOptions {
    pub(crate) clock: ClockSource,
    pub(crate) sync_interval: Duration,
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
    /// Returns the provider of the same counters in Redis.
    #[cfg(feature = "rules")]
    pub(crate) fn redis(&self) -> &RedisRateLimiterProvider {
        &self.redis
    }

    pub(crate) fn new(redis: &RedisRateLimiterProvider, options: HybridOptions) -> Self {
        let instance = Arc::new(Instance::new(options.clock, options.sync_interval));
        let limiters = PerStrategy::new(&Lessor { redis, instance: &instance });
        let strategies = limiters.each();
        let background = Arc::new(Background { instance, redis: redis.clone(), strategies });
        Self { background, redis: redis.clone(), limiters }
    }

    /// Returns the limiter of the strategy `S`.
    #[doc(hidden)]
    pub fn limiter<S: Listed>(&self) -> &HybridLimiter<S> {
        self.limiters.get::<S>()
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
