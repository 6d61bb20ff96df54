//! The absolute and suppressed limiters, with the operations of the trypema 1.x API.

use super::limiter::{LocalLimiter, TimedOutcome};
use super::provider::LocalRateLimiterOptions;
use crate::decision::RateLimitDecision;
use crate::strategy::{Absolute, AbsoluteLimit, Strategy, Suppressed, SuppressedLimit};
use crate::units::RateLimit;

/// A sliding window that never admits more than its capacity in any interval of its length.
///
/// [`inc`](Self::inc) and [`is_allowed`](Self::is_allowed) are *sticky*: the rate of the first call for a key
/// applies until the key is forgotten. All other operations take the limit with every call.
///
/// ```
/// use trypema::{RateLimit, RateLimitDecision, RateLimiter};
///
/// let rl = RateLimiter::builder().build()?;
/// let rate = RateLimit::try_from(5.0)?;
/// assert_eq!(rl.local().absolute().inc("user:123", &rate, 1), RateLimitDecision::Allowed);
/// assert_eq!(rl.local().absolute().is_allowed("user:123"), RateLimitDecision::Allowed);
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
pub type AbsoluteLocalRateLimiter = LocalLimiter<Absolute>;

impl LocalLimiter<Absolute> {
    /// Takes `count` if it fits into the window at `rate_limit`, or at the rate that the key was first called
    /// with.
    #[inline(always)]
    pub fn inc(&self, key: &str, rate_limit: &RateLimit, count: u64) -> RateLimitDecision {
        let limit = self.limit(rate_limit).sticky();
        self.view(&limit, self.take_observed(key, &limit, count))
    }

    /// Decides one more unit without recording it. A key that is not in memory is allowed.
    pub fn is_allowed(&self, key: &str) -> RateLimitDecision {
        let limit =
            AbsoluteLimit::of_live_state(self.windows.window_size_seconds, self.windows.rate_group_size_ms);
        self.view(&limit, self.peek_at(key, &limit, 1.into()))
    }

    /// Returns the limit of `rate_limit` over this limiter's window, for the operations of [`LocalLimiter`].
    #[inline]
    pub fn limit(&self, rate_limit: &RateLimit) -> AbsoluteLimit {
        AbsoluteLimit::new(*rate_limit, self.windows.window_size_seconds, self.windows.rate_group_size_ms)
    }

    /// Changes the rate that `inc` applies to a key in memory. The units that it has spent are kept. Returns
    /// whether the key is in memory.
    ///
    /// ```
    /// use trypema::{RateLimit, RateLimiter};
    ///
    /// let rl = RateLimiter::builder().build()?;
    /// let (slow, fast) = (RateLimit::try_from(1.0 / 60.0)?, RateLimit::try_from(5.0)?);
    /// let absolute = rl.local().absolute();
    /// assert!(absolute.inc("ann", &slow, 1).is_allowed());
    /// assert!(!absolute.inc("ann", &fast, 1).is_allowed(), "the first rate holds");
    /// assert!(absolute.set_rate_limit("ann", &fast));
    /// assert!(absolute.inc("ann", &slow, 1).is_allowed());
    /// # Ok::<(), trypema::TrypemaError>(())
    /// ```
    pub fn set_rate_limit(&self, key: &str, rate_limit: &RateLimit) -> bool {
        let capacity = self.limit(rate_limit).capacity();
        self.change(key, |state| state.set_capacity(capacity))
    }

    #[inline(always)]
    fn view(&self, limit: &AbsoluteLimit, found: TimedOutcome<Absolute>) -> RateLimitDecision {
        if Absolute::is_admitted(&found.outcome) {
            return RateLimitDecision::Allowed;
        }
        let used_after_wait = found.outcome.used_after_wait();
        RateLimitDecision::rejected(self.windows.window_size_seconds, &found.decision(limit), used_after_wait)
    }
}

/// A sliding window that denies a growing share of the calls above its limit.
///
/// [`inc`](Self::inc) and [`is_allowed`](Self::is_allowed) are *sticky*, as in [`AbsoluteLocalRateLimiter`].
///
/// ```
/// use trypema::{RateLimit, RateLimitDecision, RateLimiter};
///
/// let rl = RateLimiter::builder().build()?;
/// let rate = RateLimit::try_from(5.0)?; // 300 a minute, at most 600
/// let answers = (0..1_000).map(|_| rl.local().suppressed().inc("user:123", &rate, 1));
/// let admitted = answers.filter(RateLimitDecision::is_allowed).count();
/// assert!((300..=600).contains(&admitted));
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
pub type SuppressedLocalRateLimiter = LocalLimiter<Suppressed>;

impl LocalLimiter<Suppressed> {
    /// Observes `count` and decides it at `rate_limit`, or at the rate that the key was first called with.
    #[inline(always)]
    pub fn inc(&self, key: &str, rate_limit: &RateLimit, count: u64) -> RateLimitDecision {
        let limit = self.limit(rate_limit).sticky();
        self.view(&limit, self.take_observed(key, &limit, count))
    }

    /// Returns the decision of [`inc`](Self::inc) for one more unit, without observing it. A key that is not
    /// in memory is allowed.
    pub fn is_allowed(&self, key: &str) -> RateLimitDecision {
        let LocalRateLimiterOptions { window_size_seconds, rate_group_size_ms, hard_limit_factor } =
            self.windows;
        let limit =
            SuppressedLimit::of_live_state(window_size_seconds, rate_group_size_ms, hard_limit_factor);
        self.view(&limit, self.peek_at(key, &limit, 1.into()))
    }

    /// Returns the limit of `rate_limit` over this limiter's window, for the operations of [`LocalLimiter`].
    #[inline]
    pub fn limit(&self, rate_limit: &RateLimit) -> SuppressedLimit {
        let LocalRateLimiterOptions { window_size_seconds, rate_group_size_ms, hard_limit_factor } =
            self.windows;
        SuppressedLimit::new(*rate_limit, window_size_seconds, rate_group_size_ms, hard_limit_factor)
    }

    /// Changes the rate that `inc` applies to a key in memory. The units that it has spent are kept. Returns
    /// whether the key is in memory.
    pub fn set_rate_limit(&self, key: &str, rate_limit: &RateLimit) -> bool {
        let capacity = self.limit(rate_limit).soft();
        self.change(key, |state| state.set_capacity(capacity))
    }

    #[inline(always)]
    fn view(&self, limit: &SuppressedLimit, found: TimedOutcome<Suppressed>) -> RateLimitDecision {
        let is_allowed = Suppressed::is_admitted(&found.outcome);
        let used_after_wait = found.outcome.used_after_wait();
        match found.outcome.factor() {
            Some(suppression_factor) => RateLimitDecision::Suppressed { suppression_factor, is_allowed },
            None if is_allowed => RateLimitDecision::Allowed,
            None => RateLimitDecision::rejected(
                self.windows.window_size_seconds,
                &found.decision(limit),
                used_after_wait,
            ),
        }
    }
}
