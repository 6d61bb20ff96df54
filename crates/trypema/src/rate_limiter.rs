//! `RateLimiter`, the object that holds every provider, and its builder.

mod cleanup;
mod limiters;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, ClockSource};
use crate::error::TrypemaError;
#[cfg(feature = "_redis")]
use crate::hybrid::{HybridOptions, HybridRateLimiterProvider};
use crate::local::{Bound, LocalRateLimiterOptions, LocalRateLimiterProvider, WhenFull};
use crate::observer::Observer;
#[cfg(feature = "_redis")]
use crate::redis::{
    OnFailure, RedisConnection, RedisKey, RedisRateLimiterOptions, RedisRateLimiterProvider, StoreConfig,
};
use crate::strategy::WindowOptions;
use crate::units::{HardLimitFactor, RateGroupSizeMs, WindowSizeSeconds};
use cleanup::Cleanup;

/// The options of [`RateLimiter::new`].
#[derive(Debug, Clone)]
pub struct RateLimiterOptions {
    /// Options of the local provider.
    pub local: LocalRateLimiterOptions,
    /// Options of the Redis provider.
    #[cfg(feature = "_redis")]
    pub redis: RedisRateLimiterOptions,
}

/// Rate limits of any strategy, on any provider.
///
/// ```
/// use std::sync::Arc;
/// use trypema::{RateLimit, RateLimitDecision, RateLimiter, WindowSizeSeconds};
///
/// let window = WindowSizeSeconds::try_from(60)?;
/// let rl = Arc::new(RateLimiter::builder().window_size_seconds(window).build()?);
/// rl.run_cleanup_loop();
///
/// let rate_limit = RateLimit::try_from(5.0)?;
/// match rl.local().absolute().inc("user:123", &rate_limit, 1) {
///     RateLimitDecision::Allowed => {}
///     RateLimitDecision::Rejected { retry_after_ms, .. } => println!("back off for {retry_after_ms} ms"),
///     RateLimitDecision::Suppressed { .. } => unreachable!("only the suppressed strategy suppresses"),
/// }
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug)]
pub struct RateLimiter {
    local: LocalRateLimiterProvider,
    #[cfg(feature = "_redis")]
    redis: RedisRateLimiterProvider,
    #[cfg(feature = "_redis")]
    hybrid: HybridRateLimiterProvider,
    cleanup: Cleanup,
}

impl RateLimiter {
    /// Returns a limiter with these options and the system's clock. Starts no background work.
    pub fn new(options: RateLimiterOptions) -> Self {
        let builder = RateLimiterBuilder { windows: options.local.into(), ..RateLimiterBuilder::default() };
        #[cfg(feature = "_redis")]
        let builder = builder.redis_options(options.redis);
        builder.build_checked()
    }

    /// Returns a builder for a limiter. By default, windows are 60 s long, with groups of 10 ms.
    pub fn builder() -> RateLimiterBuilder {
        RateLimiterBuilder::default()
    }

    /// Returns the strategies inside this process.
    #[inline]
    pub fn local(&self) -> &LocalRateLimiterProvider {
        &self.local
    }

    /// Returns the strategies that are shared through Redis. Without a connection, every call fails.
    #[cfg(feature = "_redis")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "redis-tokio", feature = "redis-smol"))))]
    pub fn redis(&self) -> &RedisRateLimiterProvider {
        &self.redis
    }

    /// Returns the strategies that are shared through Redis, and decided in this process while it holds a
    /// lease.
    #[cfg(feature = "_redis")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "redis-tokio", feature = "redis-smol"))))]
    pub fn hybrid(&self) -> &HybridRateLimiterProvider {
        &self.hybrid
    }

    /// Starts forgetting stale keys in the background: every 30 seconds, those that have been equivalent to
    /// fresh ones for 10 minutes. See [`RateLimiter::run_cleanup_loop_with_config`].
    pub fn run_cleanup_loop(self: &Arc<Self>) {
        self.run_cleanup_loop_with_config(600_000, 30_000);
    }

    /// Starts forgetting stale keys in the background: every `interval_ms`, those that have been equivalent
    /// to fresh ones for `stale_after_ms`. No state that still matters is forgotten.
    ///
    /// Limits are correct without the loop, and keys are also forgotten as new ones arrive. The loop releases
    /// memory when no new keys arrive. It runs on a thread of its own, needs no async runtime, and ends with
    /// the last `Arc` of the limiter. A second call changes the settings of the running loop.
    pub fn run_cleanup_loop_with_config(self: &Arc<Self>, stale_after_ms: u64, interval_ms: u64) {
        // An interval of zero would keep a core busy.
        let interval = Duration::from_millis(interval_ms.max(1));
        self.cleanup
            .run(self, cleanup::CleanupConfig { stale_for: Duration::from_millis(stale_after_ms), interval });
    }
}

/// A builder for a [`RateLimiter`].
///
/// ```
/// use std::time::Duration;
/// use trypema::{RateLimiter, WindowSizeSeconds};
///
/// let rl = RateLimiter::builder()
///     .window_size_seconds(WindowSizeSeconds::try_from(10)?)
///     .max_keys(1_000_000)
///     .build()?;
/// assert!(RateLimiter::builder().max_keys(0).build().is_err());
/// # let _ = rl;
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct RateLimiterBuilder {
    windows: WindowOptions,
    max_keys: Option<usize>,
    when_full: WhenFull,
    clock: ClockSource,
    observer: Option<Arc<dyn Observer>>,
    #[cfg(feature = "_redis")]
    redis: RedisSettings,
}

/// The options of the Redis and the hybrid provider.
#[cfg(feature = "_redis")]
#[derive(Debug, Clone)]
struct RedisSettings {
    connection: Option<RedisConnection>,
    prefix: RedisKey,
    call_timeout: Duration,
    on_failure: OnFailure,
    /// The window of `inc`, if it differs from the local one.
    windows: Option<WindowOptions>,
    sync_interval: Duration,
}

/// The default interval between lease requests of the hybrid provider. It applies to windows longer than 140
/// s (for token buckets, 163 s), and is shorter for shorter ones.
#[cfg(feature = "_redis")]
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The longest interval between lease requests. Units stay leased for about as long.
#[cfg(feature = "_redis")]
const LONGEST_SYNC_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(feature = "_redis")]
impl Default for RedisSettings {
    fn default() -> Self {
        Self {
            connection: None,
            prefix: RedisKey::default_prefix(),
            call_timeout: StoreConfig::DEFAULT_CALL_TIMEOUT,
            on_failure: OnFailure::default(),
            windows: None,
            sync_interval: SYNC_INTERVAL,
        }
    }
}

impl Default for RateLimiterBuilder {
    fn default() -> Self {
        Self {
            windows: WindowOptions::DEFAULT,
            max_keys: None,
            when_full: WhenFull::Share,
            clock: ClockSource::System,
            observer: None,
            #[cfg(feature = "_redis")]
            redis: RedisSettings::default(),
        }
    }
}

impl RateLimiterBuilder {
    /// Sets the window in which `inc` counts.
    pub fn window_size_seconds(mut self, window: WindowSizeSeconds) -> Self {
        self.windows.window = window;
        self
    }

    /// Sets the time within which calls share a bucket of that window.
    pub fn rate_group_size_ms(mut self, group: RateGroupSizeMs) -> Self {
        self.windows.group = group;
        self
    }

    /// Sets the ratio of the suppressed strategy's hard limit to its soft limit.
    pub fn hard_limit_factor(mut self, factor: HardLimitFactor) -> Self {
        self.windows.factor = factor;
        self
    }

    /// Sets the largest number of keys that each strategy keeps in memory. See [`WhenFull`] for new keys
    /// beyond it.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = Some(keys);
        self
    }

    /// Sets the treatment of a new key when `max_keys` keys still matter.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Sets the clock to use instead of the system's and of Redis's own.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = ClockSource::Custom(clock);
        self
    }

    /// Sets the observer, which is called for every take.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Sets the connection to the Redis through which limits are shared.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use trypema::RateLimiter;
    /// use trypema::redis::{OnFailure, RedisConnection, RedisKey};
    ///
    /// # async fn example() -> Result<(), trypema::TrypemaError> {
    /// let rl = RateLimiter::builder()
    ///     .redis(RedisConnection::connect("redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster").await?)
    ///     .redis_prefix(RedisKey::encode("shop:limits"))
    ///     .redis_deadline(Duration::from_millis(20))
    ///     .on_redis_failure(OnFailure::Allow)
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "_redis")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "redis-tokio", feature = "redis-smol"))))]
    pub fn redis(mut self, connection: impl Into<RedisConnection>) -> Self {
        self.redis.connection = Some(connection.into());
        self
    }

    /// Sets the prefix of all keys in Redis, in place of `trypema`: any text, for example
    /// `RedisKey::encode("myapp:ratelimit")`.
    #[cfg(feature = "_redis")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "redis-tokio", feature = "redis-smol"))))]
    pub fn redis_prefix(mut self, prefix: RedisKey) -> Self {
        self.redis.prefix = prefix;
        self
    }

    /// Sets the longest time that a call waits for Redis. The default is 50 ms.
    #[cfg(feature = "_redis")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "redis-tokio", feature = "redis-smol"))))]
    pub fn redis_deadline(mut self, deadline: Duration) -> Self {
        self.redis.call_timeout = deadline;
        self
    }

    /// Sets the result of a call when Redis fails. The default is an `Err`.
    #[cfg(feature = "_redis")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "redis-tokio", feature = "redis-smol"))))]
    pub fn on_redis_failure(mut self, on_failure: OnFailure) -> Self {
        self.redis.on_failure = on_failure;
        self
    }

    /// Sets the interval between the hybrid provider's lease requests for a key. The default is one second.
    /// The interval is at most 1/140 of the window of a limit (1/163 for a token bucket). Resets and blocks
    /// reach other instances within the same time.
    #[cfg(feature = "_redis")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "redis-tokio", feature = "redis-smol"))))]
    pub fn sync_interval(mut self, interval: Duration) -> Self {
        self.redis.sync_interval = interval;
        self
    }

    #[cfg(feature = "_redis")]
    fn redis_options(mut self, options: RedisRateLimiterOptions) -> Self {
        self.redis.windows = Some(WindowOptions {
            window: options.window_size_seconds,
            group: options.rate_group_size_ms,
            factor: options.hard_limit_factor,
        });
        self.redis.prefix = options.prefix.unwrap_or_else(RedisKey::default_prefix);
        self.redis(options.connection_manager)
    }

    /// Returns the limiter, or an error if an option is invalid. Starts no background work.
    pub fn build(self) -> Result<RateLimiter, TrypemaError> {
        if self.max_keys == Some(0) {
            return Err(TrypemaError::InvalidMaxKeys);
        }
        #[cfg(feature = "_redis")]
        if self.redis.call_timeout < Duration::from_micros(1) {
            return Err(TrypemaError::InvalidRedisDeadline);
        }
        #[cfg(feature = "_redis")]
        if !(Duration::from_millis(1)..=LONGEST_SYNC_INTERVAL).contains(&self.redis.sync_interval) {
            let (given, max) = (self.redis.sync_interval, LONGEST_SYNC_INTERVAL);
            return Err(TrypemaError::InvalidSyncInterval { given, max });
        }
        Ok(self.build_checked())
    }

    fn build_checked(self) -> RateLimiter {
        #[cfg(feature = "_redis")]
        let (redis, hybrid) = self.redis_providers();
        let bound = self.max_keys.map(|max_keys| Bound { max_keys, when_full: self.when_full });
        let config = crate::local::LimiterConfig { clock: self.clock, bound, observer: self.observer };
        let local = LocalRateLimiterProvider::new(self.windows, config);
        RateLimiter {
            local,
            #[cfg(feature = "_redis")]
            redis,
            #[cfg(feature = "_redis")]
            hybrid,
            cleanup: Cleanup::default(),
        }
    }

    #[cfg(feature = "_redis")]
    fn redis_providers(&self) -> (RedisRateLimiterProvider, HybridRateLimiterProvider) {
        let RedisSettings { connection, prefix, call_timeout, on_failure, windows, sync_interval } =
            self.redis.clone();
        let clock = match &self.clock {
            ClockSource::System => None,
            ClockSource::Custom(_) => Some(self.clock.clone()),
        };
        let observer = self.observer.clone();
        let windows = windows.unwrap_or(self.windows);
        let config = StoreConfig { connection, prefix, call_timeout, on_failure, clock, observer, windows };
        let redis = RedisRateLimiterProvider::new(config);
        let hybrid = HybridRateLimiterProvider::new(
            &redis,
            HybridOptions { clock: self.clock.clone(), sync_interval },
        );
        (redis, hybrid)
    }
}
