//! Deletes a counter and its reservations.

use crate::check::{Check, Verb};
use crate::local::LocalRateLimiterProvider;
use crate::provider::ProviderVerb;

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
}

impl ProviderVerb for ResetRequest<'_> {
    fn run_local(&self, local: &LocalRateLimiterProvider) -> bool {
        local.reset_with_reservations(&self.check)
    }

    #[cfg(feature = "_redis")]
    fn run_hybrid<'a>(
        requests: &'a [Self],
        hybrid: &'a crate::hybrid::HybridRateLimiterProvider,
        deadline: crate::check::Deadline,
    ) -> super::super::MaybeReady<'a, Vec<Result<bool, crate::error::TrypemaError>>> {
        super::super::MaybeReady::pending(async move {
            let forget = || requests.iter().for_each(|request| hybrid.forget(&request.check));
            forget();
            let results = hybrid.redis().each(requests, deadline).await;
            // The reset in Redis also deleted units that were leased meanwhile.
            forget();
            results
        })
    }
}

#[cfg(feature = "_redis")]
mod in_redis {
    use super::ResetRequest;
    use crate::redis::{CheckReply, CheckRequest, RedisFailure, RedisRateLimiterProvider, ScriptVerb, verb};

    impl ScriptVerb for ResetRequest<'_> {
        fn request(&self, redis: &RedisRateLimiterProvider) -> Result<CheckRequest, bool> {
            Ok(redis.request(verb::RESET, &self.check))
        }

        fn read(&self, redis: &RedisRateLimiterProvider, reply: &CheckReply) -> Result<bool, RedisFailure> {
            redis.forget_fallback(&self.check);
            Ok(reply.number > 0)
        }
    }
}
