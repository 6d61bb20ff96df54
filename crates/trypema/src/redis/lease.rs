//! Leases: units that one instance takes in advance and spends without calling Redis.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::batcher::CallOptions;
use super::failure::{RedisFailure, RedisFailureKind};
use super::key::RedisKey;
use super::limiter::RedisLimiter;
use super::protocol::Verb;
use super::receipt::RedisReceipt;
use super::verb_call::{LimitedKey, VerbArgs, VerbCall};
use crate::clock::Timestamp;
use crate::local::DecisionWithReceipt;
use crate::strategy::{Call, Leasable, LeaseGrant, LeaseParams};

/// The reply to a lease request.
#[derive(Debug, Clone, Copy)]
pub struct LeaseResponse<O> {
    /// The granted lease.
    pub lease: LeaseGrant<O>,
    /// The time of the grant, by the clock of Redis.
    pub now: Timestamp,
    /// The number of instances that share the key.
    pub instances: u32,
    /// The key's reset count at the grant.
    pub resets: u32,
}

/// A request for a lease, and the instance that makes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeaseArgs {
    /// The request.
    pub params: LeaseParams,
    /// The instance.
    pub instance: InstanceLiveness,
}

/// An instance, and how long it counts as live.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InstanceLiveness {
    /// A number that is unique to the instance.
    pub id: u64,
    /// The time for which the instance counts as live after this request, in microseconds; 0 if it leaves.
    pub live_for_us: u64,
}

/// The conditions under which a lease is requested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseSending<'a> {
    pub(crate) deadline: Timestamp,
    /// Counts the request when it is sent.
    pub(crate) sent: &'a Arc<AtomicU64>,
}

impl<S: Leasable> RedisLimiter<S> {
    /// Requests a lease, and returns the rest of an ended one.
    #[cfg(feature = "unstable-testkit")]
    #[doc(hidden)]
    pub async fn lease(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        args: LeaseArgs,
    ) -> Result<LeaseResponse<S::Outcome>, RedisFailure> {
        let sending = LeaseSending { deadline: self.deadline_from_now(), sent: &Arc::default() };
        self.send_lease(sending, LimitedKey { key, limit }, args).await
    }

    /// Requests a lease, and returns the rest of an ended one.
    pub(crate) async fn send_lease(
        &self,
        LeaseSending { deadline, sent }: LeaseSending<'_>,
        LimitedKey { key, limit }: LimitedKey<'_, '_, S::Limit>,
        lease: LeaseArgs,
    ) -> Result<LeaseResponse<S::Outcome>, RedisFailure> {
        let options = CallOptions::with_deadline(deadline);
        let params = lease.params;
        if params.want > 0 || params.need > 0 {
            self.charge_outage_units(key, limit, options.clone()).await?;
        }
        let args = VerbArgs { extra: params.length_us, ..VerbArgs::new(Verb::Lease, params.need) };
        let mut request = self.check_request(key, Some(limit), args);
        lease.write(&mut request.limit);
        let options = CallOptions { sent: Some(Arc::clone(sent)), ..options };
        let reply = self.store.send(request, options).await?;
        if reply.number > params.need.max(params.want) {
            return Err(RedisFailure::new(
                RedisFailureKind::BadReply,
                "the lease has more units than were requested",
            ));
        }
        let (now, units, instances, resets) = (reply.now, reply.number, reply.instances, reply.resets);
        let origin = reply.origin;
        let decided = VerbArgs { cost: if units == 0 { params.need.max(1) } else { units }, ..args };
        let outcome = self.read(limit, decided, reply)?.outcome;
        if units > 0 && units < params.need && !S::allows_local_draws(&outcome) {
            return Err(RedisFailure::new(
                RedisFailureKind::BadReply,
                "the lease has fewer units than were needed",
            ));
        }
        let call = Call::new(now, units).with_stamp(params.end(now, units));
        let recorded = if units == 0 { now } else { S::recorded_at(limit, &outcome, call) };
        let lease = LeaseGrant { units, recorded, origin, outcome };
        Ok(LeaseResponse { lease, now, instances, resets })
    }

    /// Returns the time until which a call with this `deadline` waits for a reply to another call's
    /// request. It leaves half of the usual timeout for a request of its own.
    pub(crate) fn shared_wait_deadline(&self, deadline: Timestamp) -> Timestamp {
        let half_us = self.store.call_timeout().as_micros() as u64 / 2;
        Timestamp::derived(deadline.as_micros().saturating_sub(half_us))
    }

    /// Takes `cost` if it fits, and issues a receipt. Applies no failure policy.
    pub(crate) async fn reserve_without_policy<'l>(
        &self,
        deadline: Timestamp,
        LimitedKey { key, limit }: LimitedKey<'_, 'l, S::Limit>,
        cost: u64,
    ) -> Result<DecisionWithReceipt<S::Decision<'l>, RedisReceipt>, RedisFailure> {
        let (options, name) = (CallOptions::with_deadline(deadline), self.store.name(key, S::SUFFIX));
        let outcome = self
            .run_verb_with(options, name, VerbCall::new(key, limit, VerbArgs::new(Verb::Reserve, cost)))
            .await?;
        Ok(self.reservation(key, limit, outcome))
    }

    /// Takes `cost` if it fits. Returns the outcome and the time in Redis. Applies no failure policy.
    pub(crate) async fn take_without_policy(
        &self,
        deadline: Timestamp,
        LimitedKey { key, limit }: LimitedKey<'_, '_, S::Limit>,
        cost: u64,
    ) -> Result<(S::Outcome, Timestamp), RedisFailure> {
        let options = CallOptions::with_deadline(deadline);
        let name = self.store.name(key, S::SUFFIX);
        let outcome = self
            .run_verb_with(options, name, VerbCall::new(key, limit, VerbArgs::new(Verb::Take, cost)))
            .await?;
        Ok((outcome.outcome, outcome.reply.now))
    }
}
