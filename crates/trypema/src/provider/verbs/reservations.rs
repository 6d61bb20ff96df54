//! Reservations: they take units like a request, under an id, and are then settled, renewed and listed.

#[cfg(feature = "_redis")]
use crate::check::Deadline;
#[cfg(feature = "_redis")]
use crate::error::TrypemaError;
#[cfg(feature = "_redis")]
use crate::hybrid::HybridRateLimiterProvider;
use crate::local::LocalRateLimiterProvider;
#[cfg(feature = "_redis")]
use crate::provider::MaybeReady;
use crate::provider::{AtomicResult, AtomicVerb, ProviderVerb};
#[cfg(feature = "_redis")]
use crate::redis::RedisRateLimiterProvider;
use crate::reservation::{
    HeldReservation, HoldersRequest, RenewRequest, RenewedCheck, ReserveRequest, ReservedCheck,
    SettleRequest, SettledCheck,
};

/// Reserves all checks of the request under its id, or none of them. A check that is reserved under this id already is
/// allowed, and spends nothing again. It fails with [`ReservationConflict`](crate::TrypemaError::ReservationConflict) if
/// another request has made a reservation with this id.
///
/// A reservation is never made of leased units, so that any server can settle it.
impl AtomicVerb for ReserveRequest<'_> {
    type Receipt = ReservedCheck;

    fn is_empty(&self) -> bool {
        AtomicVerb::is_empty(&self.take)
    }

    fn run_local(self, local: &LocalRateLimiterProvider) -> AtomicResult<ReservedCheck> {
        local.reserve_by_name(self)
    }

    #[cfg(feature = "_redis")]
    async fn run_redis(self, redis: &RedisRateLimiterProvider) -> AtomicResult<ReservedCheck> {
        redis.reserve_by_name(self).await
    }
}

impl ProviderVerb for SettleRequest<'_> {
    fn run_local(&self, local: &LocalRateLimiterProvider) -> SettledCheck {
        local.settle(self)
    }

    #[cfg(feature = "_redis")]
    fn run_hybrid<'a>(
        requests: &'a [Self],
        hybrid: &'a HybridRateLimiterProvider,
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<Result<SettledCheck, TrypemaError>>> {
        MaybeReady::pending(async move {
            let settled = hybrid.redis().each(requests, deadline).await;
            for (request, result) in requests.iter().zip(&settled) {
                if result.as_ref().is_ok_and(|settled| settled.refunded > 0) {
                    hybrid.forget_denials(&request.check);
                }
            }
            settled
        })
    }
}

impl ProviderVerb for RenewRequest<'_> {
    fn run_local(&self, local: &LocalRateLimiterProvider) -> Option<RenewedCheck> {
        local.renew(self)
    }
}

impl ProviderVerb for HoldersRequest<'_> {
    fn run_local(&self, local: &LocalRateLimiterProvider) -> Vec<HeldReservation> {
        local.holders_of(&self.check)
    }
}
