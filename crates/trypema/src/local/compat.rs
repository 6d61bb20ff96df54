//! The absolute and suppressed limiters, with the operations of the trypema 1.x API.

use super::limiter::{LocalLimiter, TimedOutcome};
use crate::decision::RateLimitDecision;
use crate::strategy::{Absolute, SharedState, Suppressed, WindowStrategy};
use crate::units::RateLimit;

/// A sliding window that never admits more than its capacity in any interval of its length.
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

/// A sliding window that denies a growing share of the calls above its limit.
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

/// The operations of the trypema 1.x API, of the absolute and the suppressed strategy. `inc` and `is_allowed` are *sticky*:
/// the rate of the first call for a key applies until the key is forgotten. All other operations take the limit with
/// every call.
impl<S: WindowStrategy> LocalLimiter<S> {
    /// Takes `count` if it fits into the window at `rate_limit`, or at the rate that the key was first called
    /// with.
    #[inline(always)]
    pub fn inc(&self, key: &str, rate_limit: &RateLimit, count: u64) -> RateLimitDecision {
        let limit = S::sticky(self.limit(rate_limit));
        self.view(&limit, self.take_observed(key, &limit, count))
    }

    /// Returns the decision of [`inc`](Self::inc) for one more unit, without recording it. A key that is not in
    /// memory is allowed.
    pub fn is_allowed(&self, key: &str) -> RateLimitDecision {
        let limit = S::of_live_state(&self.windows);
        self.view(&limit, self.peek_at(key, &limit, 1.into()))
    }

    /// Returns the limit of `rate_limit` over this limiter's window, for the operations that take a limit.
    #[inline]
    pub fn limit(&self, rate_limit: &RateLimit) -> S::Limit {
        S::limit(&self.windows, *rate_limit)
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
        let limit = self.limit(rate_limit);
        self.change(key, |state| state.adopt(&limit))
    }

    #[inline(always)]
    fn view(&self, limit: &S::Limit, found: TimedOutcome<S>) -> RateLimitDecision {
        let used_after_wait = S::used_after_wait(&found.outcome);
        S::view(&self.windows, &found.decision(limit), used_after_wait)
    }
}
