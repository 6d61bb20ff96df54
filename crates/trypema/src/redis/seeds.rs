//! The absolute and suppressed limiters with the calls that the published documentation names.

use std::ops::Deref;

use super::ask::Verb;
use super::key::RedisKey;
use super::limiter::{Asking, Limiter};
use super::provider::Windows;
use crate::decision::RateLimitDecision;
use crate::error::TrypemaError;
use crate::strategy::{Absolute, AbsoluteLimit, Suppressed, SuppressedLimit};
use crate::units::RateLimit;

/// A sliding window, shared through Redis, that never admits more than its capacity in any interval of its
/// length.
///
/// [`inc`](Self::inc) and [`is_allowed`](Self::is_allowed) are *sticky*: the rate of the first call for a key
/// holds until the key is forgotten. The verbs of [`Limiter`], to which this derefs, take the limit with
/// every call.
#[derive(Debug)]
pub struct AbsoluteRedisRateLimiter {
    core: Limiter<Absolute>,
    windows: Windows,
}

impl AbsoluteRedisRateLimiter {
    pub(super) fn new(core: Limiter<Absolute>, windows: Windows) -> Self {
        Self { core, windows }
    }

    /// Takes `count` if it fits into the window at `rate_limit`, or at the rate the key was first called
    /// with.
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
        self.view(key, &self.limit(rate_limit).sticky(), Asking::new(Verb::Take, count)).await
    }

    /// Whether one more would be admitted; records nothing. A key never seen is allowed.
    pub async fn is_allowed(&self, key: &RedisKey) -> Result<RateLimitDecision, TrypemaError> {
        let limit = AbsoluteLimit::of_live_state(self.windows.window, self.windows.group);
        self.view(key, &limit, Asking::new(Verb::Peek, 1)).await
    }

    /// `rate_limit` over this limiter's window, for the verbs that take a limit.
    pub fn limit(&self, rate_limit: &RateLimit) -> AbsoluteLimit {
        AbsoluteLimit::new(*rate_limit, self.windows.window, self.windows.group)
    }

    /// Changes the rate that `inc` goes by for a known key, keeping what was spent; whether the key is known.
    pub async fn set_rate_limit(&self, key: &RedisKey, rate_limit: &RateLimit) -> Result<bool, TrypemaError> {
        let ask = self.core.ask(key, Some(&self.limit(rate_limit)), Asking::new(Verb::Adopt, 0));
        Ok(self.core.number(key, ask).await? > 0)
    }

    async fn view(
        &self,
        key: &RedisKey,
        limit: &AbsoluteLimit,
        asking: Asking,
    ) -> Result<RateLimitDecision, TrypemaError> {
        let started = self.core.started();
        let name = self.core.store.name(key, "absolute");
        let found = self.core.found(key, &name, (limit, asking)).await;
        let used_after_wait = found.as_ref().map_or(0, |found| found.outcome.used_after_wait());
        let found = found.map(|found| found.decision(limit));
        let decision = self.core.or_substitute(key, (limit, asking), found)?;
        if asking.verb == Verb::Take {
            self.core.tell(key, asking.cost, started, Some(decision));
        }
        Ok(match decision.is_allowed() {
            true => RateLimitDecision::Allowed,
            false => RateLimitDecision::rejected(self.windows.window, &decision, used_after_wait),
        })
    }
}

impl Deref for AbsoluteRedisRateLimiter {
    type Target = Limiter<Absolute>;

    fn deref(&self) -> &Limiter<Absolute> {
        &self.core
    }
}

/// A sliding window, shared through Redis, that sheds load by degrees instead of shutting at its limit.
///
/// [`inc`](Self::inc) and [`is_allowed`](Self::is_allowed) are *sticky*, as in [`AbsoluteRedisRateLimiter`].
#[derive(Debug)]
pub struct SuppressedRedisRateLimiter {
    core: Limiter<Suppressed>,
    windows: Windows,
}

impl SuppressedRedisRateLimiter {
    pub(super) fn new(core: Limiter<Suppressed>, windows: Windows) -> Self {
        Self { core, windows }
    }

    /// Observes `count` and admits it at `rate_limit`, or at the rate the key was first called with.
    pub async fn inc(
        &self,
        key: &RedisKey,
        rate_limit: &RateLimit,
        count: u64,
    ) -> Result<RateLimitDecision, TrypemaError> {
        self.view(key, &self.limit(rate_limit).sticky(), Asking::new(Verb::Take, count)).await
    }

    /// What [`inc`](Self::inc) would answer for one more; observes nothing. A key never seen is allowed.
    pub async fn is_allowed(&self, key: &RedisKey) -> Result<RateLimitDecision, TrypemaError> {
        let Windows { window, group, factor } = self.windows;
        let limit = SuppressedLimit::of_live_state(window, group, factor);
        self.view(key, &limit, Asking::new(Verb::Peek, 1)).await
    }

    /// `rate_limit` over this limiter's window, for the verbs that take a limit.
    pub fn limit(&self, rate_limit: &RateLimit) -> SuppressedLimit {
        let Windows { window, group, factor } = self.windows;
        SuppressedLimit::new(*rate_limit, window, group, factor)
    }

    /// Changes the rate that `inc` goes by for a known key, keeping what was spent; whether the key is known.
    pub async fn set_rate_limit(&self, key: &RedisKey, rate_limit: &RateLimit) -> Result<bool, TrypemaError> {
        let ask = self.core.ask(key, Some(&self.limit(rate_limit)), Asking::new(Verb::Adopt, 0));
        Ok(self.core.number(key, ask).await? > 0)
    }

    async fn view(
        &self,
        key: &RedisKey,
        limit: &SuppressedLimit,
        asking: Asking,
    ) -> Result<RateLimitDecision, TrypemaError> {
        let started = self.core.started();
        let name = self.core.store.name(key, "suppressed");
        let found = self.core.found(key, &name, (limit, asking)).await;
        let used_after_wait = found.as_ref().map_or(0, |found| found.outcome.used_after_wait());
        let found = found.map(|found| found.decision(limit));
        let decision = self.core.or_substitute(key, (limit, asking), found)?;
        if asking.verb == Verb::Take {
            self.core.tell(key, asking.cost, started, Some(*decision));
        }
        let is_allowed = decision.is_allowed();
        Ok(match decision.suppression_factor() {
            Some(suppression_factor) => RateLimitDecision::Suppressed { suppression_factor, is_allowed },
            None if is_allowed => RateLimitDecision::Allowed,
            None => RateLimitDecision::rejected(self.windows.window, &decision, used_after_wait),
        })
    }
}

impl Deref for SuppressedRedisRateLimiter {
    type Target = Limiter<Suppressed>;

    fn deref(&self) -> &Limiter<Suppressed> {
        &self.core
    }
}
