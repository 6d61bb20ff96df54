//! Decides one check by itself: takes, peeks, or records that another check denies its request.

#[cfg(feature = "_redis")]
use super::in_redis::*;
use crate::check::{Check, DecideRequest};
use crate::decision::Decision;
#[cfg(feature = "rules")]
use crate::local::LocalRateLimiterProvider;
use crate::provider::Verb;
#[cfg(feature = "_redis")]
use crate::redis::read_decision;
#[cfg(feature = "_redis")]
use crate::strategy::{Effect, Spend};

impl Verb for DecideRequest<'_> {
    type Output = Decision;

    fn check(&self) -> &Check<'_> {
        &self.check
    }

    #[cfg(feature = "rules")]
    fn run_local(&self, local: &LocalRateLimiterProvider) -> Decision {
        local.decide(self)
    }

    #[cfg(feature = "_redis")]
    fn request(&self, redis: &Redis) -> Result<CheckRequest, Decision> {
        Ok(redis.request(self.effect.verb(), &self.check).spending(self.spend()))
    }

    #[cfg(feature = "_redis")]
    fn read(&self, _: &Redis, reply: &CheckReply) -> Result<Decision, RedisFailure> {
        let decision = read_decision(&self.check, self.spend(), reply, &mut reply.reader())?;
        if self.effect == Effect::DeniedElsewhere && decision.is_allowed() {
            // It costs nothing.
            return read_decision(&self.check, Spend::NOTHING, reply, &mut reply.reader());
        }
        Ok(decision)
    }

    #[cfg(feature = "_redis")]
    fn observed<'o>(&self, decision: &'o Decision) -> Option<&'o Decision> {
        (self.effect != Effect::Peek).then_some(decision)
    }

    #[cfg(all(feature = "_redis", feature = "rules"))]
    fn run_hybrid<'a>(
        requests: &'a [Self],
        hybrid: &'a Hybrid,
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<Result<Decision, TrypemaError>>> {
        MaybeReady::pending(async move {
            if requests.iter().all(|request| request.effect == Effect::Peek) {
                let checks: Vec<Check<'_>> = requests.iter().map(|request| request.check).collect();
                return hybrid.peek_each(&checks, deadline).await;
            }
            all(requests.iter().map(|request| hybrid.decide_one(request, deadline))).await
        })
    }
}
