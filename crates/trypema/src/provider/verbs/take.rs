//! Takes several checks, all or nothing.

#[cfg(feature = "_redis")]
use super::in_redis::*;
use crate::check::{DecideRequest, Receipts, TakeRequest, TakeResponse};
use crate::local::LocalRateLimiterProvider;
use crate::provider::{AnyReceipt, AtomicResult, AtomicVerb};
#[cfg(feature = "_redis")]
use crate::redis::both;
use crate::strategy::Effect;

impl AtomicVerb for TakeRequest<'_> {
    type Receipt = AnyReceipt;

    fn is_empty(&self) -> bool {
        TakeRequest::is_empty(self)
    }

    fn run_local(self, local: &LocalRateLimiterProvider) -> AtomicResult<AnyReceipt> {
        let taken = match self.receipts {
            Receipts::Unwanted => local.take_all(self.checks),
            Receipts::Wanted => local.take_all_with_receipts(self.checks),
        };
        let take = |check| Ok(local.decide(&DecideRequest::new(Effect::Take, check)));
        let independent = self.independent.iter().copied().map(take).collect();
        Ok(TakeResponse { independent, ..TakeResponse::from(taken?).map_receipts(AnyReceipt::Local) })
    }

    #[cfg(feature = "_redis")]
    async fn run_redis(self, redis: &Redis) -> AtomicResult<AnyReceipt> {
        Ok(redis.take(self).await?.map_receipts(AnyReceipt::Redis))
    }

    #[cfg(feature = "_redis")]
    fn run_hybrid<'a>(self, hybrid: &'a Hybrid) -> MaybeReady<'a, AtomicResult<AnyReceipt>>
    where
        Self: 'a,
    {
        if self.independent.is_empty()
            && let Some(taken) = hybrid.try_take(self.checks)
        {
            return MaybeReady::Ready(taken.map(|taken| taken.map_receipts(AnyReceipt::Hybrid)));
        }
        MaybeReady::pending(async move {
            let take = |check| async move {
                hybrid.decide_one(&DecideRequest::new(Effect::Take, check), self.deadline).await
            };
            let independent = all(self.independent.iter().copied().map(take));
            let (independent, taken) = both(independent, hybrid.take(self)).await;
            Ok(TakeResponse { independent, ..taken?.map_receipts(AnyReceipt::Hybrid) })
        })
    }
}
