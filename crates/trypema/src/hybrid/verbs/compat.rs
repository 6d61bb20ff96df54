//! The absolute and suppressed limiters with the calls of the trypema 1.x API.

use super::decide::Attempt;
use super::limiter::HybridLimiter;
use crate::decision::RateLimitDecision;
use crate::error::TrypemaError;
use crate::redis::{KeySpend, RedisKey};
use crate::strategy::{Absolute, Effect, Leasable, Suppressed, WindowStrategy};
use crate::units::RateLimit;

/// Sliding windows with strict limits.
pub type AbsoluteHybridRateLimiter = HybridLimiter<Absolute>;

/// Sliding windows that shed load gradually.
pub type SuppressedHybridRateLimiter = HybridLimiter<Suppressed>;

/// The calls of the trypema 1.x API, as [`RedisLimiter`](crate::redis::RedisLimiter) has them.
impl<S: WindowStrategy + Leasable> HybridLimiter<S> {
    /// Takes `count` if it fits into the window at `rate_limit`, or at the rate that the key was first
    /// called with.
    pub async fn inc(
        &self,
        key: &RedisKey,
        rate_limit: &RateLimit,
        count: u64,
    ) -> Result<RateLimitDecision, TrypemaError> {
        let limit = S::sticky(self.limit(rate_limit));
        let take = KeySpend::new(key, &limit, count);
        let started = self.redis().started();
        let found = self.take_outcome(take, Attempt::first()).await;
        let used_after_wait = found.as_ref().map_or(0, |found| S::used_after_wait(&found.outcome));
        let decided = found.map(|found| found.decision(&limit));
        let decision = self.redis().or_fallback(Effect::Take, take, decided)?;
        self.redis().notify_decision(key, count, started, Some(S::core(&decision)));
        Ok(S::view(self.redis().windows(), &decision, used_after_wait))
    }

    /// Returns the decision that [`inc`](Self::inc) would make for a count of 1, at the rate of a live key.
    /// Records nothing.
    pub async fn is_allowed(&self, key: &RedisKey) -> Result<RateLimitDecision, TrypemaError> {
        let limit = S::of_live_state(self.redis().windows());
        let held = self.held(key);
        let decision = self.redis().peek(key, &limit, u64::from(held == 0)).await?;
        Ok(S::view(self.redis().windows(), &decision, 0))
    }

    /// Changes the sticky rate of a live key. Returns whether the key is live. Other instances may spend
    /// units that they hold under the old rate, for up to the length of a lease.
    pub async fn set_rate_limit(&self, key: &RedisKey, rate_limit: &RateLimit) -> Result<bool, TrypemaError> {
        let is_live = self.redis().adopt(key, &self.limit(rate_limit)).await;
        self.end_leases(key);
        is_live
    }

    /// Returns `rate_limit` over this limiter's window, for the verbs that take a limit.
    pub fn limit(&self, rate_limit: &RateLimit) -> S::Limit {
        S::limit(self.redis().windows(), *rate_limit)
    }
}
