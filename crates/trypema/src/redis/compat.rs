//! The absolute and suppressed limiters with the calls of the trypema 1.x API.

use super::key::RedisKey;
use super::key_spend::KeySpend;
use super::limiter::RedisLimiter;
use crate::decision::RateLimitDecision;
use crate::error::TrypemaError;
use crate::strategy::{Absolute, Effect, Suppressed, WindowOptions, WindowStrategy, Wire};
use crate::units::RateLimit;

/// A sliding window, shared through Redis, that never admits more than its capacity in any interval of its
/// length.
pub type AbsoluteRedisRateLimiter = RedisLimiter<Absolute>;

/// A sliding window, shared through Redis, that sheds load gradually before it denies everything.
pub type SuppressedRedisRateLimiter = RedisLimiter<Suppressed>;

/// The calls of the trypema 1.x API. Their limits are rates, in units per second, which count in the window that the
/// builder sets. `inc` and `is_allowed` are *sticky*: the rate of the first call for a key stays in force until the key
/// expires.
impl<S: WindowStrategy + Wire> RedisLimiter<S> {
    /// Takes `count` if it fits into the window at `rate_limit`, or at the rate that the key was first
    /// called with.
    ///
    /// ```no_run
    /// use trypema::{RateLimit, RateLimitDecision, RedisKey};
    ///
    /// # async fn example(limiter: &trypema::AbsoluteRedisRateLimiter) -> Result<(), trypema::TrypemaError> {
    /// let key = RedisKey::try_from("user_123".to_string())?;
    /// match limiter.inc(&key, &RateLimit::try_from(10.0)?, 1).await? {
    ///     RateLimitDecision::Allowed => {}
    ///     RateLimitDecision::Rejected { retry_after_ms, .. } => println!("back off for {retry_after_ms} ms"),
    ///     RateLimitDecision::Suppressed { .. } => unreachable!("only the suppressed strategy suppresses"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inc(
        &self,
        key: &RedisKey,
        rate_limit: &RateLimit,
        count: u64,
    ) -> Result<RateLimitDecision, TrypemaError> {
        self.view(Effect::Take, KeySpend::new(key, &S::sticky(self.limit(rate_limit)), count)).await
    }

    /// Returns the decision that [`inc`](Self::inc) would make for a count of 1. Records nothing. An
    /// unknown key is allowed.
    pub async fn is_allowed(&self, key: &RedisKey) -> Result<RateLimitDecision, TrypemaError> {
        self.view(Effect::Peek, KeySpend::new(key, &S::of_live_state(self.windows()), 1)).await
    }

    /// Returns `rate_limit` over this limiter's window, for the verbs that take a limit.
    pub fn limit(&self, rate_limit: &RateLimit) -> S::Limit {
        S::limit(self.windows(), *rate_limit)
    }

    /// Changes the sticky rate of a known key and keeps its usage. Returns whether the key is known.
    pub async fn set_rate_limit(&self, key: &RedisKey, rate_limit: &RateLimit) -> Result<bool, TrypemaError> {
        self.adopt(key, &self.limit(rate_limit)).await
    }

    /// Returns the window of `inc`.
    pub(crate) fn windows(&self) -> &WindowOptions {
        self.store.windows()
    }

    async fn view(
        &self,
        effect: Effect,
        call: KeySpend<'_, '_, S::Limit>,
    ) -> Result<RateLimitDecision, TrypemaError> {
        let started = self.started();
        let request = self.request(effect.verb(), call.key, Some(call.limit));
        let found = self.run(request, call, self.store.call_options()).await;
        let used_after_wait = found.as_ref().map_or(0, |found| S::used_after_wait(&found.outcome));
        let decision = self.or_fallback(effect, call, found.map(|found| found.decision(call.limit)))?;
        if effect == Effect::Take {
            self.notify_decision(call.key, call.spend.cost, started, Some(S::core(&decision)));
        }
        Ok(S::view(self.windows(), &decision, used_after_wait))
    }
}
