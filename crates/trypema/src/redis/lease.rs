//! Leases: units that one instance takes in advance and spends without calling Redis.

use super::ask::{LeaseTerms, Verb};
use super::batcher::Terms;
use super::failure::{RedisFailure, RedisFailureKind};
use super::key::RedisKey;
use super::key_call::{Asking, KeyCall};
use super::limiter::Limiter;
use super::receipt::Reservation;
use crate::clock::Timestamp;
use crate::strategy::{Call, Leasable, LeaseGrant, LeaseParams};

/// The reply to a lease request.
#[derive(Debug, Clone, Copy)]
pub struct ToldLease<O> {
    /// The granted lease.
    pub leased: LeaseGrant<O>,
    /// The time of the grant, by the clock of Redis.
    pub now: Timestamp,
    /// The number of instances that share the key.
    pub instances: u32,
    /// The key's reset count at the grant.
    pub resets: u32,
}

/// An instance that shares a key with others.
#[derive(Debug, Clone, Copy)]
pub struct Sharer {
    /// A number that is unique to the instance.
    pub instance: u64,
    /// The time for which the instance counts as live after this request, in microseconds; 0 if it leaves.
    pub live_for_us: u64,
}

impl<S: Leasable> Limiter<S> {
    /// Requests a lease, and returns the rest of an ended one.
    #[doc(hidden)]
    pub async fn lease(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        (ask, sharer): (LeaseParams, Sharer),
    ) -> Result<ToldLease<S::Outcome>, RedisFailure> {
        self.lease_by(self.deadline_from_now(), (key, limit), (ask, sharer)).await
    }

    /// Same as [`lease`](Self::lease), with a deadline.
    pub(crate) async fn lease_by(
        &self,
        deadline: Timestamp,
        (key, limit): (&RedisKey, &S::Limit),
        (ask, sharer): (LeaseParams, Sharer),
    ) -> Result<ToldLease<S::Outcome>, RedisFailure> {
        let terms = Terms::until(deadline);
        if ask.want > 0 || ask.need > 0 {
            self.settle(key, limit, terms.clone()).await?;
        }
        let asking = Asking { verb: Verb::Lease, cost: ask.need, extra: ask.length_us };
        let mut asked = self.ask(key, Some(limit), asking);
        let Sharer { instance, live_for_us } = sharer;
        asked.lease = Some(LeaseTerms { ask, instance, live_for_us });
        let told = self.store.ask(asked, terms).await?;
        if told.number > ask.need.max(ask.want) {
            return Err(RedisFailure::new(RedisFailureKind::BadReply, "more was granted than asked for"));
        }
        let (now, units, instances, resets) = (told.now, told.number, told.instances, told.resets);
        let decided = Asking { cost: if units == 0 { ask.need.max(1) } else { units }, ..asking };
        let outcome = self.read(limit, decided, told)?.outcome;
        if units > 0 && units < ask.need && !S::allows_local_draws(&outcome) {
            return Err(RedisFailure::new(RedisFailureKind::BadReply, "less was granted than needed"));
        }
        let call = Call::new(now, units).with_stamp(ask.end(now, units));
        let recorded = if units == 0 { now } else { S::recorded_at(limit, &outcome, call) };
        Ok(ToldLease { leased: LeaseGrant { units, recorded, outcome }, now, instances, resets })
    }

    /// Returns the time until which a call with this `deadline` waits for a reply to another call's
    /// request. It leaves half of the usual timeout for a request of its own.
    pub(crate) fn patience(&self, deadline: Timestamp) -> Timestamp {
        let half_us = self.store.deadline().as_micros() as u64 / 2;
        Timestamp::derived(deadline.as_micros().saturating_sub(half_us))
    }

    /// Takes `cost` if it fits, and issues a receipt. Applies no failure policy.
    pub(crate) async fn plain_reserve<'l>(
        &self,
        deadline: Timestamp,
        key: &RedisKey,
        (limit, cost): (&'l S::Limit, u64),
    ) -> Result<Reservation<S::Decision<'l>>, RedisFailure> {
        let (terms, name) = (Terms::until(deadline), self.store.name(key, S::SUFFIX));
        let found =
            self.found_by(terms, name, KeyCall::new(key, limit, Asking::new(Verb::Reserve, cost))).await?;
        Ok(self.reservation(key, limit, found))
    }

    /// Takes `cost` if it fits. Returns the outcome and the time in Redis. Applies no failure policy.
    pub(crate) async fn plain_take(
        &self,
        deadline: Timestamp,
        key: &RedisKey,
        (limit, cost): (&S::Limit, u64),
    ) -> Result<(S::Outcome, Timestamp), RedisFailure> {
        let terms = Terms::until(deadline);
        let name = self.store.name(key, S::SUFFIX);
        let found =
            self.found_by(terms, name, KeyCall::new(key, limit, Asking::new(Verb::Take, cost))).await?;
        Ok((found.outcome, found.told.now))
    }
}
