//! Reservations: they take units like a request, under an id, and are then settled, renewed and listed.

#[cfg(feature = "_redis")]
use std::time::Duration;

#[cfg(feature = "_redis")]
use super::in_redis::*;
use crate::check::Check;
use crate::local::LocalRateLimiterProvider;
use crate::provider::{AtomicResult, AtomicVerb, Verb};
#[cfg(feature = "_redis")]
use crate::redis::{ReservationArgs, left_until, malformed};
#[cfg(feature = "_redis")]
use crate::reservation::{Ending, SettleStatus};
use crate::reservation::{
    HeldReservation, HoldersRequest, RenewRequest, RenewedCheck, ReserveRequest, ReservedCheck,
    SettleRequest, SettledCheck,
};
#[cfg(feature = "_redis")]
use crate::strategy::reservations::Entry;

/// Reserves all checks of the request under its id, or none of them. A check that is reserved under this id already is
/// allowed, and spends nothing again. It fails with [`ReservationConflict`](crate::TrypemaError::ReservationConflict) if
/// another request has made a reservation with this id.
///
/// A reservation is never made of leased units, so that any server can settle it.
impl AtomicVerb for ReserveRequest<'_> {
    type Receipt = ReservedCheck;

    fn is_empty(&self) -> bool {
        self.take.is_empty()
    }

    fn run_local(self, local: &LocalRateLimiterProvider) -> AtomicResult<ReservedCheck> {
        local.reserve_by_name(self)
    }

    #[cfg(feature = "_redis")]
    async fn run_redis(self, redis: &Redis) -> AtomicResult<ReservedCheck> {
        redis.reserve_by_name(self).await
    }
}

impl Verb for SettleRequest<'_> {
    type Output = SettledCheck;

    fn check(&self) -> &Check<'_> {
        &self.check
    }

    fn run_local(&self, local: &LocalRateLimiterProvider) -> SettledCheck {
        local.settle(self)
    }

    #[cfg(feature = "_redis")]
    fn request(&self, redis: &Redis) -> Result<CheckRequest, SettledCheck> {
        let (attempt, ending, marked_for) = match self.ending {
            Ending::Cost => (0, 0, Duration::ZERO),
            Ending::Estimate => (0, verb::AT_ESTIMATE, Duration::ZERO),
            Ending::Undone { attempt, marked_for } => (attempt, verb::AT_UNDOING, marked_for),
        };
        let ending = if self.is_remembered { ending + verb::REMEMBERED } else { ending };
        let name = ReservationArgs { id: self.id.0, attempt, ending, ..ReservationArgs::default() };
        let request = redis.request(verb::SETTLE, &self.check).spending(self.check.cost.into());
        Ok(request.lasting(marked_for).naming(&name))
    }

    #[cfg(feature = "_redis")]
    fn read(&self, _: &Redis, reply: &CheckReply) -> Result<SettledCheck, RedisFailure> {
        let status = match reply.number {
            1 => SettleStatus::Settled,
            2 => SettleStatus::SettledBefore,
            3 => SettleStatus::NoRoom,
            _ => SettleStatus::Unknown,
        };
        let [reserved, counted, refunded, expires_at] = reply.counts()?;
        let expires_in = left_until(expires_at, reply.now);
        Ok(SettledCheck { status, reserved, counted, refunded, expires_in })
    }

    #[cfg(feature = "_redis")]
    fn run_hybrid<'a>(
        requests: &'a [Self],
        hybrid: &'a Hybrid,
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

impl Verb for RenewRequest<'_> {
    /// `None` if the counter does not know the reservation.
    type Output = Option<RenewedCheck>;

    fn check(&self) -> &Check<'_> {
        &self.check
    }

    fn run_local(&self, local: &LocalRateLimiterProvider) -> Option<RenewedCheck> {
        local.renew(self)
    }

    #[cfg(feature = "_redis")]
    fn request(&self, redis: &Redis) -> Result<CheckRequest, Option<RenewedCheck>> {
        let name = ReservationArgs { id: self.id.0, ..ReservationArgs::default() };
        Ok(redis.request(verb::RENEW, &self.check).lasting(self.ttl).naming(&name))
    }

    #[cfg(feature = "_redis")]
    fn read(&self, _: &Redis, reply: &CheckReply) -> Result<Option<RenewedCheck>, RedisFailure> {
        let [was_left, expires_in] = reply.counts()?.map(|at| left_until(at, reply.now));
        Ok((reply.number == 1).then_some(RenewedCheck { was_left, expires_in }))
    }
}

impl Verb for HoldersRequest<'_> {
    type Output = Vec<HeldReservation>;

    fn check(&self) -> &Check<'_> {
        &self.check
    }

    fn run_local(&self, local: &LocalRateLimiterProvider) -> Vec<HeldReservation> {
        local.holders_of(&self.check)
    }

    #[cfg(feature = "_redis")]
    fn request(&self, redis: &Redis) -> Result<CheckRequest, Vec<HeldReservation>> {
        Ok(redis.request(verb::HOLDERS, &self.check).naming(&ReservationArgs::default()))
    }

    #[cfg(feature = "_redis")]
    fn read(&self, _: &Redis, reply: &CheckReply) -> Result<Vec<HeldReservation>, RedisFailure> {
        let reader = &mut reply.reader();
        let entry = |_| Some(HeldReservation::new(&Entry::read(reader)?, reply.now));
        (0..reply.number).map(entry).collect::<Option<_>>().ok_or_else(malformed)
    }
}
