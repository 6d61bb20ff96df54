//! Refunds a take.

#[cfg(feature = "_redis")]
use super::in_redis::*;
use crate::check::Check;
use crate::local::LocalRateLimiterProvider;
use crate::provider::{AnyReceipt, Verb};
use crate::strategy::with_strategy;

/// A refund of one check. The result is the number of units that still counted and were refunded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefundRequest<'a> {
    pub(crate) check: Check<'a>,
    /// Identifies the take. Without a receipt, the cost of the check is refunded, oldest units first.
    pub(crate) receipt: Option<&'a AnyReceipt>,
}

impl Verb for RefundRequest<'_> {
    type Output = u64;

    fn check(&self) -> &Check<'_> {
        &self.check
    }

    fn run_local(&self, local: &LocalRateLimiterProvider) -> u64 {
        let check = &self.check;
        with_strategy!(check.limit, |S, limit| {
            let limiter = local.limiter::<S>();
            match self.receipt {
                Some(AnyReceipt::Local(receipt)) => limiter.refund(check.key, limit, receipt),
                None => limiter.refund_units(check.key, limit, check.cost),
                Some(_) => 0,
            }
        })
    }

    #[cfg(feature = "_redis")]
    fn request(&self, redis: &Redis) -> Result<CheckRequest, u64> {
        let check = &self.check;
        match self.receipt {
            Some(AnyReceipt::Redis(receipt)) => redis.refund_request(check, receipt).ok_or(0),
            // Redis may have been charged for these units meanwhile. They stay spent then: they are
            // indistinguishable from other units.
            Some(AnyReceipt::Fallback) => Err(redis.refund_fallback(check, redis.policy(None))),
            Some(_) => Err(0),
            None => Ok(redis.request(verb::REFUND_UNITS, check).spending(check.cost.into())),
        }
    }

    #[cfg(feature = "_redis")]
    fn read(&self, _: &Redis, reply: &CheckReply) -> Result<u64, RedisFailure> {
        Ok(reply.number)
    }

    #[cfg(feature = "_redis")]
    fn run_hybrid<'a>(
        requests: &'a [Self],
        hybrid: &'a Hybrid,
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<Result<u64, TrypemaError>>> {
        let refund = move |request: &'a Self| async move {
            match request.receipt {
                Some(AnyReceipt::Hybrid(receipt)) => {
                    hybrid.refund_by_receipt(&request.check, receipt, deadline).await
                }
                _ => hybrid.redis().one(*request, deadline).await,
            }
        };
        MaybeReady::pending(all(requests.iter().map(refund)))
    }
}
