//! `rl.redis()`: the six strategies, shared through Redis.

use std::sync::Arc;

use super::key::RedisKey;
use super::limiter::Limiter;
use super::seeds::{AbsoluteRedisRateLimiter, SuppressedRedisRateLimiter};
use super::store::{Parts, Store};
use super::transport::RedisStats;
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
#[derive(Debug, Clone)]
pub struct RedisRateLimiterProvider {
    pub(super) store: Arc<Store>,
    pub(super) absolute: AbsoluteRedisRateLimiter,
    pub(super) suppressed: SuppressedRedisRateLimiter,
    pub(super) token_bucket: Limiter<TokenBucket>,
    pub(super) sliding_window: Limiter<SlidingWindow>,
    pub(super) fixed_window: Limiter<FixedWindow>,
    pub(super) abuse: Limiter<Abuse>,
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

    /// What can be told of the connection, for metrics.
    pub fn stats(&self) -> RedisStats {
        self.store.stats()
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
}
