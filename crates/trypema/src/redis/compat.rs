//! The absolute and suppressed limiters with the calls of the trypema 1.x API.

use std::ops::Deref;

use super::key::RedisKey;
use super::key_spend::KeySpend;
use super::limiter::RedisLimiter;
use super::provider::WindowOptions;
use crate::decision::{Decision, RateLimitDecision, SuppressedDecision};
use crate::error::TrypemaError;
use crate::strategy::{Absolute, AbsoluteLimit, Effect, Suppressed, SuppressedLimit, Wire};
use crate::units::RateLimit;

/// A sliding window, shared through Redis, that never admits more than its capacity in any interval of its
/// length.
pub type AbsoluteRedisRateLimiter = RedisWindowLimiter<Absolute>;

/// A sliding window, shared through Redis, that sheds load gradually before it denies everything.
pub type SuppressedRedisRateLimiter = RedisWindowLimiter<Suppressed>;

/// A limiter whose limits are rates, in units per second. It counts calls in the window of its options.
///
/// [`inc`](Self::inc) and [`is_allowed`](Self::is_allowed) are *sticky*: the rate of the first call for a key
/// stays in force until the key expires. The verbs of [`RedisLimiter`], to which this type derefs, take the
/// limit with every call.
#[derive(Debug)]
pub struct RedisWindowLimiter<S: WindowStrategy> {
    core: RedisLimiter<S>,
    windows: WindowOptions,
}

/// A strategy whose limits are rates over a window.
pub trait WindowStrategy: Wire {
    /// Returns the limit for `rate` over the window.
    fn limit(windows: &WindowOptions, rate: RateLimit) -> Self::Limit;
    /// Makes a limit sticky: the limit that a live key was first called with takes precedence over it.
    fn sticky(limit: Self::Limit) -> Self::Limit;
    /// Returns a limit that applies the limit stored with a live state. A key without a live state is not
    /// limited.
    fn of_live_state(windows: &WindowOptions) -> Self::Limit;
    /// Returns the units that are still used after a denied caller has waited.
    fn used_after_wait(outcome: &Self::Outcome) -> u64;
    /// Converts the decision to the type of the trypema 1.x API.
    fn view(
        windows: &WindowOptions,
        decision: &Self::Decision<'_>,
        used_after_wait: u64,
    ) -> RateLimitDecision;
}

impl<S: WindowStrategy> RedisWindowLimiter<S> {
    pub(super) fn new(core: RedisLimiter<S>, windows: WindowOptions) -> Self {
        Self { core, windows }
    }

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
        self.view(Effect::Peek, KeySpend::new(key, &S::of_live_state(&self.windows), 1)).await
    }

    /// Returns `rate_limit` over this limiter's window, for the verbs that take a limit.
    pub fn limit(&self, rate_limit: &RateLimit) -> S::Limit {
        S::limit(&self.windows, *rate_limit)
    }

    /// Changes the sticky rate of a known key and keeps its usage. Returns whether the key is known.
    pub async fn set_rate_limit(&self, key: &RedisKey, rate_limit: &RateLimit) -> Result<bool, TrypemaError> {
        self.core.adopt(key, &self.limit(rate_limit)).await
    }

    async fn view(
        &self,
        effect: Effect,
        call: KeySpend<'_, '_, S::Limit>,
    ) -> Result<RateLimitDecision, TrypemaError> {
        let started = self.core.started();
        let request = self.core.request(effect.verb(), call.key, Some(call.limit));
        let found = self.core.run(request, call, self.core.store.call_options()).await;
        let used_after_wait = found.as_ref().map_or(0, |found| S::used_after_wait(&found.outcome));
        let decided = found.map(|found| found.decision(call.limit));
        let decision = self.core.or_fallback(effect, call, decided)?;
        if effect == Effect::Take {
            self.core.notify_decision(call.key, call.spend.cost, started, Some(S::core(&decision)));
        }
        Ok(S::view(&self.windows, &decision, used_after_wait))
    }
}

impl<S: WindowStrategy> Clone for RedisWindowLimiter<S> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone(), windows: self.windows }
    }
}

impl<S: WindowStrategy> Deref for RedisWindowLimiter<S> {
    type Target = RedisLimiter<S>;

    fn deref(&self) -> &RedisLimiter<S> {
        &self.core
    }
}

impl WindowStrategy for Absolute {
    fn limit(windows: &WindowOptions, rate: RateLimit) -> AbsoluteLimit {
        AbsoluteLimit::new(rate, windows.window, windows.group)
    }

    fn sticky(limit: AbsoluteLimit) -> AbsoluteLimit {
        limit.sticky()
    }

    fn of_live_state(windows: &WindowOptions) -> AbsoluteLimit {
        AbsoluteLimit::of_live_state(windows.window, windows.group)
    }

    fn used_after_wait(outcome: &Self::Outcome) -> u64 {
        outcome.used_after_wait()
    }

    fn view(windows: &WindowOptions, decision: &Decision, used_after_wait: u64) -> RateLimitDecision {
        match decision.is_allowed() {
            true => RateLimitDecision::Allowed,
            false => RateLimitDecision::rejected(windows.window, decision, used_after_wait),
        }
    }
}

impl WindowStrategy for Suppressed {
    fn limit(windows: &WindowOptions, rate: RateLimit) -> SuppressedLimit {
        SuppressedLimit::new(rate, windows.window, windows.group, windows.factor)
    }

    fn sticky(limit: SuppressedLimit) -> SuppressedLimit {
        limit.sticky()
    }

    fn of_live_state(windows: &WindowOptions) -> SuppressedLimit {
        SuppressedLimit::of_live_state(windows.window, windows.group, windows.factor)
    }

    fn used_after_wait(outcome: &Self::Outcome) -> u64 {
        outcome.used_after_wait()
    }

    fn view(
        windows: &WindowOptions,
        decision: &SuppressedDecision,
        used_after_wait: u64,
    ) -> RateLimitDecision {
        let is_allowed = decision.is_allowed();
        match decision.suppression_factor() {
            Some(suppression_factor) => RateLimitDecision::Suppressed { suppression_factor, is_allowed },
            None => Absolute::view(windows, decision, used_after_wait),
        }
    }
}
