//! Leases: units that one instance takes in advance and spends without calling Redis.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::batcher::CallOptions;
use super::failure::{RedisFailure, RedisFailureKind};
use super::key::RedisKey;
use super::limiter::RedisLimiter;
use super::protocol::read_origin;
use super::verb;
use crate::clock::Timestamp;
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
        self.send_lease(sending, key, limit, args).await
    }

    /// Requests a lease, and returns the rest of an ended one.
    pub(crate) async fn send_lease(
        &self,
        LeaseSending { deadline, sent }: LeaseSending<'_>,
        key: &RedisKey,
        limit: &S::Limit,
        lease: LeaseArgs,
    ) -> Result<LeaseResponse<S::Outcome>, RedisFailure> {
        let options = CallOptions::with_deadline(deadline);
        let params = lease.params;
        if params.want > 0 || params.need > 0 {
            self.charge_outage_units(key, limit, options.clone()).await?;
        }
        let length = Duration::from_micros(params.length_us);
        let mut request =
            self.request(verb::LEASE, key, Some(limit)).spending(params.need.into()).lasting(length);
        lease.write(&mut request.arguments);
        let options = CallOptions { sent: Some(Arc::clone(sent)), ..options };
        let reply = self.store.send(request, options).await?;
        if reply.number > params.need.max(params.want) {
            return Err(RedisFailure::new(
                RedisFailureKind::BadReply,
                "the lease has more units than were requested",
            ));
        }
        let (now, units, reader) = (reply.now, reply.number, &mut reply.reader());
        let mut terms = || Some((reader.word()?, reader.word()?, read_origin(reader)?));
        let malformed = || RedisFailure::new(RedisFailureKind::BadReply, "the lease has no terms");
        let (instances, resets, origin) = terms().ok_or_else(malformed)?;
        let decided = Call::new(now, if units == 0 { params.need.max(1) } else { units });
        let outcome = Self::read(limit, decided, &reply, reader)?.outcome;
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
}
