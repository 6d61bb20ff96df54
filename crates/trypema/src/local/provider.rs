//! `rl.local()`: the seven strategies inside this process.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::compat::{AbsoluteLocalRateLimiter, SuppressedLocalRateLimiter};
use super::limiter::LocalLimiter;
use super::map::Bound;
use crate::clock::{ClockSource, Timestamp};
use crate::observer::Observer;
use crate::strategy::{Abuse, Concurrency, FixedWindow, SlidingWindow, Strategy, TokenBucket};
use crate::units::{HardLimitFactor, RateGroupSizeMs, WindowSizeSeconds};

/// The window in which `inc` of the absolute and the suppressed strategy counts.
///
/// ```
/// use trypema::{HardLimitFactor, LocalRateLimiterOptions, RateGroupSizeMs, WindowSizeSeconds};
///
/// let options = LocalRateLimiterOptions {
///     window_size_seconds: WindowSizeSeconds::try_from(60)?,
///     rate_group_size_ms: RateGroupSizeMs::try_from(10)?,
///     hard_limit_factor: HardLimitFactor::default(),
/// };
/// # let _ = options;
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocalRateLimiterOptions {
    /// The length of the sliding window.
    pub window_size_seconds: WindowSizeSeconds,
    /// The time within which calls share a bucket.
    pub rate_group_size_ms: RateGroupSizeMs,
    /// The ratio of the suppressed strategy's hard limit to its soft limit.
    pub hard_limit_factor: HardLimitFactor,
}

/// The strategies inside this process. Each has its own keys, and is created when it is first used.
#[derive(Debug)]
pub struct LocalRateLimiterProvider {
    options: LocalRateLimiterOptions,
    config: LimiterConfig,
    absolute: OnceLock<AbsoluteLocalRateLimiter>,
    suppressed: OnceLock<SuppressedLocalRateLimiter>,
    token_bucket: OnceLock<LocalLimiter<TokenBucket>>,
    sliding_window: OnceLock<LocalLimiter<SlidingWindow>>,
    fixed_window: OnceLock<LocalLimiter<FixedWindow>>,
    abuse: OnceLock<LocalLimiter<Abuse>>,
    concurrency: OnceLock<LocalLimiter<Concurrency>>,
}

/// The parts that all limiters of a provider share.
#[derive(Debug, Clone)]
pub(crate) struct LimiterConfig {
    pub(crate) clock: ClockSource,
    pub(crate) bound: Option<Bound>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

impl LimiterConfig {
    fn limiter<S: Strategy>(&self) -> LocalLimiter<S> {
        LocalLimiter::new(self.clock.clone(), self.bound, self.observer.clone())
    }
}

impl LocalRateLimiterProvider {
    pub(crate) fn new(options: LocalRateLimiterOptions, config: LimiterConfig) -> Self {
        Self {
            options,
            config,
            absolute: OnceLock::new(),
            suppressed: OnceLock::new(),
            token_bucket: OnceLock::new(),
            sliding_window: OnceLock::new(),
            fixed_window: OnceLock::new(),
            abuse: OnceLock::new(),
            concurrency: OnceLock::new(),
        }
    }

    /// Returns the limiter of sliding windows with strict limits.
    #[inline]
    pub fn absolute(&self) -> &AbsoluteLocalRateLimiter {
        self.absolute.get_or_init(|| AbsoluteLocalRateLimiter::new(self.config.limiter(), self.options))
    }

    /// Returns the limiter of sliding windows that deny a growing share of the calls above their limits.
    #[inline]
    pub fn suppressed(&self) -> &SuppressedLocalRateLimiter {
        self.suppressed.get_or_init(|| SuppressedLocalRateLimiter::new(self.config.limiter(), self.options))
    }

    /// Returns the limiter of token buckets with one or more limits.
    #[inline]
    pub fn token_bucket(&self) -> &LocalLimiter<TokenBucket> {
        self.token_bucket.get_or_init(|| self.config.limiter())
    }

    /// Returns the limiter of sliding-window counters.
    #[inline]
    pub fn sliding_window(&self) -> &LocalLimiter<SlidingWindow> {
        self.sliding_window.get_or_init(|| self.config.limiter())
    }

    /// Returns the limiter of fixed windows.
    #[inline]
    pub fn fixed_window(&self) -> &LocalLimiter<FixedWindow> {
        self.fixed_window.get_or_init(|| self.config.limiter())
    }

    /// Returns the limiter of attempts, with blocks.
    #[inline]
    pub fn abuse(&self) -> &LocalLimiter<Abuse> {
        self.abuse.get_or_init(|| self.config.limiter())
    }

    /// Returns the limiter of units that are held at the same time.
    #[inline]
    pub fn concurrency(&self) -> &LocalLimiter<Concurrency> {
        self.concurrency.get_or_init(|| self.config.limiter())
    }

    pub(crate) fn observer(&self) -> Option<&Arc<dyn Observer>> {
        self.config.observer.as_ref()
    }

    #[cfg(feature = "rules")]
    pub(crate) fn clock(&self) -> &ClockSource {
        &self.config.clock
    }

    pub(super) fn now(&self) -> Timestamp {
        self.config.clock.now()
    }

    /// Returns the number of keys in memory, of all strategies.
    pub fn len(&self) -> usize {
        self.absolute.get().map_or(0, |limiter| limiter.len())
            + self.suppressed.get().map_or(0, |limiter| limiter.len())
            + self.token_bucket.get().map_or(0, LocalLimiter::len)
            + self.sliding_window.get().map_or(0, LocalLimiter::len)
            + self.fixed_window.get().map_or(0, LocalLimiter::len)
            + self.abuse.get().map_or(0, LocalLimiter::len)
            + self.concurrency.get().map_or(0, LocalLimiter::len)
    }

    /// Whether no key is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets, in every strategy, the keys that have been equivalent to fresh ones for `stale_for`.
    pub fn forget_stale(&self, stale_for: Duration) {
        if let Some(limiter) = self.absolute.get() {
            limiter.forget_stale(stale_for);
        }
        if let Some(limiter) = self.suppressed.get() {
            limiter.forget_stale(stale_for);
        }
        if let Some(limiter) = self.token_bucket.get() {
            limiter.forget_stale(stale_for);
        }
        if let Some(limiter) = self.sliding_window.get() {
            limiter.forget_stale(stale_for);
        }
        if let Some(limiter) = self.fixed_window.get() {
            limiter.forget_stale(stale_for);
        }
        if let Some(limiter) = self.abuse.get() {
            limiter.forget_stale(stale_for);
        }
        if let Some(limiter) = self.concurrency.get() {
            limiter.forget_stale(stale_for);
        }
    }
}
