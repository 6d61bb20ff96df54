//! Verbs on single counters, each by itself: in one script call if possible.

use super::KeyedCheck;
use crate::check::{Check, Deadline};
use crate::clock::{Clock, SystemClock};
use crate::error::TrypemaError;
use crate::provider::Verb;
use crate::redis::batcher::CallOptions;
use crate::redis::key::RedisKey;
use crate::redis::protocol::{CheckRequest, malformed};
use crate::redis::provider::RedisRateLimiterProvider;
use crate::redis::receipt::RedisReceipt;
use crate::redis::verb::VerbRow;
use crate::strategy::with_strategy;

impl RedisRateLimiterProvider {
    /// Runs a verb on each counter by itself. Notifies the observer of decisions and failures.
    pub(crate) async fn each<V: Verb>(
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

    /// Runs a verb on one counter.
    pub(crate) async fn one<V: Verb>(&self, verb: V, deadline: Deadline) -> Result<V::Output, TrypemaError> {
        let missing = || Err(malformed().into());
        self.each(std::slice::from_ref(&verb), deadline).await.into_iter().next().unwrap_or_else(missing)
    }

    /// Refunds the units of a receipt that still count. Returns their number.
    pub(super) async fn refund_by_receipt(
        &self,
        check: &Check<'_>,
        receipt: &RedisReceipt,
        deadline: Deadline,
    ) -> Result<u64, TrypemaError> {
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, limit| {
            let limiter = self.limiter::<S>();
            limiter.refund_with_deadline(deadline.until(), &key, limit, receipt).await
        })
    }

    /// Returns the request for a refund; `None` if the receipt belongs to another key or strategy.
    pub(crate) fn refund_request(&self, check: &Check<'_>, receipt: &RedisReceipt) -> Option<CheckRequest> {
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, limit| self.limiter::<S>().refund_request(&key, limit, receipt))
    }

    /// Returns a request for a check that costs nothing.
    pub(crate) fn request(&self, verb: &'static VerbRow, check: &Check<'_>) -> CheckRequest {
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, limit| {
            let limit = verb.has_limit.then_some(limit);
            self.limiter::<S>().request(verb, &key, limit)
        })
    }
}
