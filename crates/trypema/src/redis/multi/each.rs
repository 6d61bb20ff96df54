//! Verbs on single counters, each by itself: in one script call if possible.

use super::{HasRedisLimiter, KeyedCheck, read_decision};
use crate::check::{Check, Deadline, DecideRequest, Verb};
use crate::clock::{Clock, SystemClock};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::redis::batcher::CallOptions;
use crate::redis::failure::RedisFailure;
use crate::redis::key::RedisKey;
use crate::redis::protocol::{CheckReply, CheckRequest};
use crate::redis::provider::RedisRateLimiterProvider;
use crate::redis::receipt::RedisReceipt;
use crate::redis::verb::VerbRow;
use crate::strategy::{Effect, Spend, with_strategy};

/// A verb that the scripts run.
pub(crate) trait ScriptVerb: Verb {
    /// Returns the request; the result if Redis has nothing to do.
    fn request(&self, redis: &RedisRateLimiterProvider) -> Result<CheckRequest, Self::Output>;

    /// Reads the reply.
    fn read(
        &self,
        redis: &RedisRateLimiterProvider,
        reply: &CheckReply,
    ) -> Result<Self::Output, RedisFailure>;

    /// Returns the decision of which the observer is notified.
    fn observed<'o>(&self, output: &'o Self::Output) -> Option<&'o Decision> {
        let _ = output;
        None
    }
}

/// Refunds the take of a receipt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefundByReceipt<'a> {
    pub(crate) check: Check<'a>,
    pub(crate) receipt: &'a RedisReceipt,
}

impl RedisRateLimiterProvider {
    /// Runs a verb on each counter by itself. Notifies the observer of decisions and failures.
    pub(crate) async fn each<V: ScriptVerb>(
        &self,
        verbs: &[V],
        deadline: Deadline,
    ) -> Vec<Result<V::Output, TrypemaError>> {
        let (started, options) = (SystemClock.now(), CallOptions::with_deadline(deadline.until()));
        let (mut keyed, mut requests) = (Vec::with_capacity(verbs.len()), Vec::with_capacity(verbs.len()));
        let mut results = Vec::with_capacity(verbs.len());
        for verb in verbs {
            match verb.request(self) {
                Ok(request) => {
                    keyed.push(KeyedCheck::new(verb.check()));
                    requests.push(request);
                    results.push(None);
                }
                Err(result) => results.push(Some(Ok(result))),
            }
        }
        let replies = self.send_each(&keyed, requests, options).await;
        let mut replies = keyed.iter().zip(replies);
        let result = |(verb, result): (&V, Option<_>)| {
            result.or_else(|| {
                let (keyed, reply) = replies.next()?;
                let result = reply.and_then(|reply| verb.read(self, &reply));
                if let Some(decision) = result.as_ref().ok().and_then(|output| verb.observed(output)) {
                    self.notify_decisions(std::iter::once((keyed, decision)), started);
                }
                Some(result.map_err(|failure| self.report_failure(keyed, failure)))
            })
        };
        verbs.iter().zip(results).filter_map(result).collect()
    }

    /// Returns a request for a check that costs nothing.
    pub(crate) fn request(&self, verb: &'static VerbRow, check: &Check<'_>) -> CheckRequest {
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, limit| {
            let limit = verb.has_limit.then_some(limit);
            HasRedisLimiter::<S>::limiter(self).request(verb, &key, limit)
        })
    }
}

impl ScriptVerb for DecideRequest<'_> {
    fn request(&self, redis: &RedisRateLimiterProvider) -> Result<CheckRequest, Decision> {
        Ok(redis.request(self.effect.verb(), &self.check).spending(self.spend()))
    }

    fn read(&self, _redis: &RedisRateLimiterProvider, reply: &CheckReply) -> Result<Decision, RedisFailure> {
        let decision = read_decision(&self.check, self.spend(), reply, &mut reply.reader())?;
        if self.effect == Effect::DeniedElsewhere && decision.is_allowed() {
            // It costs nothing.
            return read_decision(&self.check, Spend::NOTHING, reply, &mut reply.reader());
        }
        Ok(decision)
    }

    fn observed<'o>(&self, decision: &'o Decision) -> Option<&'o Decision> {
        (self.effect != Effect::Peek).then_some(decision)
    }
}

impl Verb for RefundByReceipt<'_> {
    type Output = u64;

    fn check(&self) -> &Check<'_> {
        &self.check
    }
}

impl ScriptVerb for RefundByReceipt<'_> {
    fn request(&self, redis: &RedisRateLimiterProvider) -> Result<CheckRequest, u64> {
        let key = RedisKey::encode(self.check.key);
        with_strategy!(self.check.limit, |S, limit| {
            HasRedisLimiter::<S>::limiter(redis).refund_request(&key, limit, self.receipt).ok_or(0)
        })
    }

    fn read(&self, _redis: &RedisRateLimiterProvider, reply: &CheckReply) -> Result<u64, RedisFailure> {
        Ok(reply.number)
    }
}
