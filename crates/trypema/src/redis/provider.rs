//! `rl.redis()`: the six strategies, shared through Redis.

use std::sync::Arc;

use super::key::RedisKey;
use super::limiter::Limiter;
use super::seeds::{AbsoluteRedisRateLimiter, SuppressedRedisRateLimiter};
use super::store::{Parts, Store};
use super::together::{Check, Together};
use crate::error::TrypemaError;
use crate::strategy::{Abuse, FixedWindow, SlidingWindow, TokenBucket};
use crate::units::{HardLimitFactor, RateGroupSizeMs, WindowSizeSeconds};

/// The connection, and the window that `inc` of the absolute and the suppressed strategy counts in.
///
/// Everything else there is to choose (a Cluster, Sentinel, the deadline, what a failure means) goes through
/// [`RateLimiter::builder`](crate::RateLimiter::builder).
#[derive(Clone)]
pub struct RedisRateLimiterOptions {
    /// A connection of the re-exported client, [`redis::client`](super::client).
    pub connection_manager: ::redis::aio::ConnectionManager,
    /// What the names of all keys start with; `trypema` if it is `None`.
    pub prefix: Option<RedisKey>,
    /// The length of the sliding window.
    pub window_size_seconds: WindowSizeSeconds,
    /// How close calls must be to share a bucket.
    pub rate_group_size_ms: RateGroupSizeMs,
    /// How far the suppressed strategy may go above its limit.
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

/// What `inc` counts in.
#[derive(Debug, Clone, Copy)]
pub struct Windows {
    pub(crate) window: WindowSizeSeconds,
    pub(crate) group: RateGroupSizeMs,
    pub(crate) factor: HardLimitFactor,
}

/// The strategies that are shared through Redis. Their keys are apart, whatever the strategy.
#[derive(Debug)]
pub struct RedisRateLimiterProvider {
    store: Arc<Store>,
    absolute: AbsoluteRedisRateLimiter,
    suppressed: SuppressedRedisRateLimiter,
    token_bucket: Limiter<TokenBucket>,
    sliding_window: Limiter<SlidingWindow>,
    fixed_window: Limiter<FixedWindow>,
    abuse: Limiter<Abuse>,
}

impl RedisRateLimiterProvider {
    pub(crate) fn new(windows: Windows, parts: Parts) -> Self {
        let store = Arc::new(Store::new(parts));
        Self {
            absolute: AbsoluteRedisRateLimiter::new(Limiter::new(Arc::clone(&store)), windows),
            suppressed: SuppressedRedisRateLimiter::new(Limiter::new(Arc::clone(&store)), windows),
            token_bucket: Limiter::new(Arc::clone(&store)),
            sliding_window: Limiter::new(Arc::clone(&store)),
            fixed_window: Limiter::new(Arc::clone(&store)),
            abuse: Limiter::new(Arc::clone(&store)),
            store,
        }
    }

    /// Sliding windows with strict limits.
    pub fn absolute(&self) -> &AbsoluteRedisRateLimiter {
        &self.absolute
    }

    /// Sliding windows that shed load by degrees.
    pub fn suppressed(&self) -> &SuppressedRedisRateLimiter {
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

    /// Attempt limits with blocks.
    pub fn abuse(&self) -> &Limiter<Abuse> {
        &self.abuse
    }

    /// Takes all of `checks`, which may be of any strategies and keys, or none of them: in one script call. On a
    /// Cluster their keys must be in one slot. A failure of Redis is always an `Err` here.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use trypema::redis::RedisKey;
    /// use trypema::{FixedWindowLimit, RateLimiter, TokenBucketLimits, TokenLimit};
    ///
    /// # async fn example(rl: &RateLimiter) -> Result<(), trypema::TrypemaError> {
    /// let tenant = FixedWindowLimit::new(1_000, Duration::from_secs(60))?;
    /// let user = TokenBucketLimits::from(TokenLimit::new(10, Duration::from_secs(1))?);
    /// let (acme, ann) = (RedisKey::try_from("acme")?, RedisKey::try_from("ann")?);
    ///
    /// let answer = rl
    ///     .redis()
    ///     .take_all([
    ///         rl.redis().fixed_window().check_of(&acme, &tenant, 1),
    ///         rl.redis().token_bucket().check_of(&ann, &user, 1),
    ///     ])
    ///     .await?;
    /// if let Some(denied) = answer.decisions.iter().find(|decision| !decision.is_allowed()) {
    ///     println!("try again in {:?}; nothing was spent", denied.retry_after());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn take_all<'l>(
        &self,
        checks: impl IntoIterator<Item = Check<'l>>,
    ) -> Result<Together, TrypemaError> {
        let checks: Vec<Check<'l>> = checks.into_iter().collect();
        super::together::take_all(&self.store, checks).await
    }
}
