//! `rl.redis()`: all strategies, shared through Redis.

use std::sync::Arc;

use super::failure::RedisFailure;
use super::key::RedisKey;
use super::limiter::RedisLimiter;
use super::permissions::MissingPermission;
use super::store::{Store, StoreConfig};
use super::transport::RedisStats;
use crate::clock::Timestamp;
use crate::error::TrypemaError;
use crate::strategy::{Family, Listed, Make, PerStrategy};
use crate::units::{HardLimitFactor, RateGroupSizeMs, WindowSizeSeconds};

/// The options of a limiter with Redis in the trypema 1.x API: the connection, and the window of `inc` for
/// the absolute and the suppressed strategy.
///
/// Further settings (a Cluster, Sentinel, the deadline, the failure policy) need
/// [`RateLimiter::builder`](crate::RateLimiter::builder).
#[derive(Clone)]
pub struct RedisRateLimiterOptions {
    /// A connection of the re-exported client, [`redis::client`](super::client).
    pub connection_manager: ::redis::aio::ConnectionManager,
    /// The prefix of all names in Redis; `None` stands for `trypema`.
    pub prefix: Option<RedisKey>,
    /// The length of the sliding window.
    pub window_size_seconds: WindowSizeSeconds,
    /// The length of a bucket: calls within it are counted together.
    pub rate_group_size_ms: RateGroupSizeMs,
    /// The multiple of the limit up to which the suppressed strategy admits calls.
    pub hard_limit_factor: HardLimitFactor,
}

impl std::fmt::Debug for RedisRateLimiterOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisRateLimiterOptions")
            .field("prefix", &self.prefix)
            .field("window_size_seconds", &self.window_size_seconds)
            .field("rate_group_size_ms", &self.rate_group_size_ms)
            .field("hard_limit_factor", &self.hard_limit_factor)
            .finish_non_exhaustive()
    }
}

/// The limiters of all strategies, shared through Redis. Each strategy has its own counters, even for equal
/// keys.
#[derive(Debug, Clone)]
pub struct RedisRateLimiterProvider {
    pub(super) store: Arc<Store>,
    limiters: Arc<PerStrategy<RedisLimiters>>,
}

/// The limiter of each strategy.
#[derive(Debug)]
struct RedisLimiters;

impl Family for RedisLimiters {
    type Of<S: Listed> = RedisLimiter<S>;
}

impl Make<RedisLimiters> for Arc<Store> {
    fn make<S: Listed>(&self) -> RedisLimiter<S> {
        RedisLimiter::new(Self::clone(self))
    }
}

impl RedisRateLimiterProvider {
    pub(crate) fn new(config: StoreConfig) -> Self {
        let store = Arc::new(Store::new(config));
        Self { limiters: Arc::new(PerStrategy::new(&store)), store }
    }

    /// Returns the limiter of the strategy `S`.
    #[doc(hidden)]
    pub fn limiter<S: Listed>(&self) -> &RedisLimiter<S> {
        self.limiters.get::<S>()
    }

    /// Returns the start time of a call, if there is an observer that needs it.
    pub(crate) fn started(&self) -> Option<Timestamp> {
        self.store.started()
    }

    /// Returns the state of the connection, for metrics.
    pub fn stats(&self) -> RedisStats {
        self.store.stats()
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
    /// for missing in rl.redis().missing_permissions().await? {
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
        Ok(self.probe_permissions(false).await?)
    }

    /// Returns the permissions that the Redis user lacks, with those for leases if `has_leases`.
    pub(crate) async fn probe_permissions(
        &self,
        has_leases: bool,
    ) -> Result<Vec<MissingPermission>, RedisFailure> {
        self.store.missing_permissions(has_leases).await
    }
}
