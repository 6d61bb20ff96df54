//! Deletes a counter and its reservations.

#[cfg(feature = "_redis")]
use super::in_redis::*;
use crate::check::Check;
use crate::local::LocalRateLimiterProvider;
use crate::provider::Verb;

/// Deletes the counter of a check. The result is whether there was one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResetRequest<'a> {
    pub(crate) check: Check<'a>,
}

impl Verb for ResetRequest<'_> {
    type Output = bool;

    fn check(&self) -> &Check<'_> {
        &self.check
    }

    fn run_local(&self, local: &LocalRateLimiterProvider) -> bool {
        local.reset_with_reservations(&self.check)
    }

    #[cfg(feature = "_redis")]
    fn request(&self, redis: &Redis) -> Result<CheckRequest, bool> {
        Ok(redis.request(verb::RESET, &self.check))
    }

    #[cfg(feature = "_redis")]
    fn read(&self, redis: &Redis, reply: &CheckReply) -> Result<bool, RedisFailure> {
        redis.forget_fallback(&self.check);
        Ok(reply.number > 0)
    }

    #[cfg(feature = "_redis")]
    fn run_hybrid<'a>(
        requests: &'a [Self],
        hybrid: &'a Hybrid,
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<Result<bool, TrypemaError>>> {
        MaybeReady::pending(async move {
            let forget = || requests.iter().for_each(|request| hybrid.forget(&request.check));
            forget();
            let results = hybrid.redis().each(requests, deadline).await;
            // The reset in Redis also deleted units that were leased meanwhile.
            forget();
            results
        })
    }
}
