//! `rl.local()`: all strategies inside this process.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::limiter::LocalLimiter;
use super::map::Bound;
use crate::clock::{ClockSource, Timestamp};
use crate::observer::Observer;
use crate::strategy::{Family, InCommon, Listed, Make, PerStrategy, WindowOptions};
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

impl From<LocalRateLimiterOptions> for WindowOptions {
    fn from(options: LocalRateLimiterOptions) -> Self {
        let LocalRateLimiterOptions { window_size_seconds, rate_group_size_ms, hard_limit_factor } = options;
        Self { window: window_size_seconds, group: rate_group_size_ms, factor: hard_limit_factor }
    }
}

/// The strategies inside this process. Each has its own keys, and is created when it is first used.
#[derive(Debug)]
pub struct LocalRateLimiterProvider {
    windows: WindowOptions,
    config: LimiterConfig,
    limiters: PerStrategy<LocalLimiters>,
}

/// The parts that all limiters of a provider share.
#[derive(Debug, Clone)]
pub(crate) struct LimiterConfig {
    pub(crate) clock: ClockSource,
    pub(crate) bound: Option<Bound>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

/// The limiter of each strategy.
#[derive(Debug)]
struct LocalLimiters;

impl Family for LocalLimiters {
    type Of<S: Listed> = OnceLock<LocalLimiter<S>>;
}

impl Make<Self> for LocalLimiters {
    fn make<S: Listed>(&self) -> OnceLock<LocalLimiter<S>> {
        OnceLock::new()
    }
}

impl InCommon for LocalLimiters {
    type Common<'a> = Option<&'a dyn Keys>;

    fn common<S: Listed>(one: &OnceLock<LocalLimiter<S>>) -> Option<&dyn Keys> {
        one.get().map(|limiter| limiter as _)
    }
}

/// The keys of one strategy.
trait Keys {
    fn len(&self) -> usize;
    fn forget_stale(&self, stale_for: Duration);
}

impl<S: Listed> Keys for LocalLimiter<S> {
    fn len(&self) -> usize {
        self.len()
    }

    fn forget_stale(&self, stale_for: Duration) {
        self.forget_stale(stale_for);
    }
}

impl LocalRateLimiterProvider {
    pub(crate) fn new(windows: WindowOptions, config: LimiterConfig) -> Self {
        Self { windows, config, limiters: PerStrategy::new(&LocalLimiters) }
    }

    /// Returns the limiter of the strategy `S`.
    #[doc(hidden)]
    #[inline]
    pub fn limiter<S: Listed>(&self) -> &LocalLimiter<S> {
        self.limiters.get::<S>().get_or_init(|| self.new_limiter())
    }

    fn new_limiter<S: Listed>(&self) -> LocalLimiter<S> {
        let LimiterConfig { clock, bound, observer } = self.config.clone();
        let mut limiter = LocalLimiter::new(clock, bound, observer);
        limiter.windows = self.windows;
        limiter
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

    fn keys(&self) -> impl Iterator<Item = &dyn Keys> {
        self.limiters.each().into_iter().flatten()
    }

    /// Returns the number of keys in memory, of all strategies.
    pub fn len(&self) -> usize {
        self.keys().map(Keys::len).sum()
    }

    /// Whether no key is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets, in every strategy, the keys that have been equivalent to fresh ones for `stale_for`.
    pub fn forget_stale(&self, stale_for: Duration) {
        self.keys().for_each(|keys| keys.forget_stale(stale_for));
    }
}
