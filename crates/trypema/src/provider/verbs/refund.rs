//! Refunds a take.

use crate::check::{Check, Verb};
use crate::local::LocalRateLimiterProvider;
use crate::provider::{AnyReceipt, ProviderVerb};
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
}

impl ProviderVerb for RefundRequest<'_> {
    fn run_local(&self, local: &LocalRateLimiterProvider) -> u64 {
        let check = &self.check;
        with_strategy!(check.limit, |S, limit| {
            let limiter = crate::local::HasLocalLimiter::<S>::limiter(local);
            match self.receipt {
                Some(AnyReceipt::Local(receipt)) => limiter.refund(check.key, limit, receipt),
                None => limiter.refund_units(check.key, limit, check.cost),
                Some(_) => 0,
            }
        })
    }

    #[cfg(feature = "_redis")]
    fn run_hybrid<'a>(
        requests: &'a [Self],
        hybrid: &'a crate::hybrid::HybridRateLimiterProvider,
        deadline: crate::check::Deadline,
    ) -> super::super::MaybeReady<'a, Vec<Result<u64, crate::error::TrypemaError>>> {
        let refund = move |request: &'a Self| async move {
            match request.receipt {
                Some(AnyReceipt::Hybrid(receipt)) => {
                    hybrid.refund_by_receipt(&request.check, receipt, deadline).await
                }
                _ => super::super::Provider::Redis(hybrid.redis()).one(*request, deadline).await,
            }
        };
        super::super::MaybeReady::pending(crate::redis::all(requests.iter().map(refund)))
    }
}

#[cfg(feature = "_redis")]
mod in_redis {
    use super::{AnyReceipt, RefundRequest};
    use crate::redis::{
        CheckReply, CheckRequest, RedisFailure, RedisRateLimiterProvider, RefundByReceipt, ScriptVerb, verb,
    };

    impl ScriptVerb for RefundRequest<'_> {
        fn request(&self, redis: &RedisRateLimiterProvider) -> Result<CheckRequest, u64> {
            let check = self.check;
            match self.receipt {
                Some(AnyReceipt::Redis(receipt)) => RefundByReceipt { check, receipt }.request(redis),
                // Redis may have been charged for these units meanwhile. They stay spent then: they are
                // indistinguishable from other units.
                Some(AnyReceipt::Fallback) => Err(redis.refund_fallback(&check, redis.policy(None))),
                Some(_) => Err(0),
                None => Ok(redis.request(verb::REFUND_UNITS, &check).spending(check.cost.into())),
            }
        }

        fn read(&self, _: &RedisRateLimiterProvider, reply: &CheckReply) -> Result<u64, RedisFailure> {
            Ok(reply.number)
        }
    }
}
