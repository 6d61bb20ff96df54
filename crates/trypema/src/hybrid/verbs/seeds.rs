//! The absolute and suppressed limiters with the calls that the published documentation names.

use std::ops::Deref;

use super::decide::Attempt;
use super::limiter::Limiter;
use crate::decision::RateLimitDecision;
use crate::error::TrypemaError;
use crate::hybrid::state::TakeArgs;
use crate::redis::{RedisKey, Windowed, Windows};
use crate::strategy::{Absolute, Leasable, Suppressed};
use crate::units::RateLimit;

/// Sliding windows with strict limits; see [`WindowLimiter`] for `inc` and [`Limiter`] for everything else.
pub type AbsoluteHybridRateLimiter = WindowLimiter<Absolute>;

/// Sliding windows that shed load by degrees; see [`WindowLimiter`] for `inc` and [`Limiter`] for everything else.
pub type SuppressedHybridRateLimiter = WindowLimiter<Suppressed>;

/// A limiter of this process's window: the first rate that a key is called with holds as long as it is live.
#[derive(Debug)]
pub struct WindowLimiter<S: Windowed + Leasable> {
    core: Limiter<S>,
    windows: Windows,
}

impl<S: Windowed + Leasable> WindowLimiter<S> {
    pub(super) fn new(core: Limiter<S>, windows: Windows) -> Self {
        Self { core, windows }
    }

    /// Counts `count` calls of `key` if they fit under the rate that it was first called with.
    pub async fn inc(
        &self,
        key: &RedisKey,
        rate_limit: &RateLimit,
        count: u64,
    ) -> Result<RateLimitDecision, TrypemaError> {
        let limit = S::sticky(self.limit(rate_limit));
        let take = TakeArgs { key, limit: &limit, cost: count };
        let started = self.core.redis().started();
        let found = self.core.found(take, Attempt::FIRST).await;
        let used_after_wait = found.as_ref().map_or(0, |found| S::used_after_wait(&found.outcome));
        let decided = found.map(|found| found.decision::<S>(&limit));
        let decision = self.core.redis().or_substitute_take(key, (&limit, count), decided)?;
        self.core.redis().tell(key, count, started, Some(S::core(&decision)));
        Ok(S::view(&self.windows, &decision, used_after_wait))
    }

    /// What one more call would get, by the rate of a live key.
    pub async fn is_allowed(&self, key: &RedisKey) -> Result<RateLimitDecision, TrypemaError> {
        let limit = S::of_live_state(&self.windows);
        let held = self.core.held(key);
        let decision = self.core.redis().peek(key, &limit, u64::from(held == 0)).await?;
        Ok(S::view(&self.windows, &decision, 0))
    }

    /// Gives a live key another rate for `inc`; whether it is live. Other instances may spend what they hold of the old one,
    /// for the length of a lease.
    pub async fn set_rate_limit(&self, key: &RedisKey, rate_limit: &RateLimit) -> Result<bool, TrypemaError> {
        let is_live = self.core.redis().adopt(key, &self.limit(rate_limit)).await;
        self.core.end_leases(key);
        is_live
    }

    /// The limit that `inc` goes by, for the other verbs.
    pub fn limit(&self, rate_limit: &RateLimit) -> S::Limit {
        S::limit(&self.windows, *rate_limit)
    }
}

impl<S: Windowed + Leasable> Clone for WindowLimiter<S> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone(), windows: self.windows }
    }
}

impl<S: Windowed + Leasable> Deref for WindowLimiter<S> {
    type Target = Limiter<S>;

    fn deref(&self) -> &Limiter<S> {
        &self.core
    }
}
