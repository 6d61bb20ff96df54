//! Whether a counter has a state.

#[cfg(feature = "_redis")]
use super::in_redis::*;
use crate::check::Check;
use crate::local::LocalRateLimiterProvider;
use crate::provider::Verb;
use crate::strategy::with_strategy;

/// Asks whether the counter of a check has a state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExistsRequest<'a> {
    check: Check<'a>,
}

impl Verb for ExistsRequest<'_> {
    type Output = bool;

    fn check(&self) -> &Check<'_> {
        &self.check
    }

    fn run_local(&self, local: &LocalRateLimiterProvider) -> bool {
        with_strategy!(self.check.limit, |S, _limit| {
            local.limiter::<S>().live_keys().any(|live| live.key == self.check.key)
        })
    }

    #[cfg(feature = "_redis")]
    fn request(&self, redis: &Redis) -> Result<CheckRequest, bool> {
        Ok(redis.request(verb::EXISTS, &self.check))
    }

    #[cfg(feature = "_redis")]
    fn read(&self, _: &Redis, reply: &CheckReply) -> Result<bool, RedisFailure> {
        Ok(reply.number > 0)
    }
}

impl LocalRateLimiterProvider {
    /// Returns whether the counter of a check has a state.
    pub fn exists(&self, check: Check<'_>) -> bool {
        ExistsRequest { check }.run_local(self)
    }
}

#[cfg(feature = "_redis")]
impl Redis {
    /// Returns whether the counter of a check has a state: one script call.
    pub async fn exists(&self, check: Check<'_>) -> Result<bool, TrypemaError> {
        self.one(ExistsRequest { check }, self.deadline_from_now()).await
    }
}

#[cfg(feature = "_redis")]
impl Hybrid {
    /// Same as [`RedisRateLimiterProvider::exists`](crate::redis::RedisRateLimiterProvider::exists).
    pub async fn exists(&self, check: Check<'_>) -> Result<bool, TrypemaError> {
        let (request, deadline) = ([ExistsRequest { check }], self.redis().deadline_from_now());
        let results = ExistsRequest::run_hybrid(&request, self, deadline).wait().await;
        results.into_iter().next().unwrap_or(Ok(false))
    }
}
