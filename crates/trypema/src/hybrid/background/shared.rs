//! One strategy of an instance: the holdings of all its keys, and their lease requests.

use std::sync::Arc;

use super::instance::Instance;
use super::lease_request::LeaseRequest;
use crate::clock::Timestamp;
use crate::decision::DecisionTime;
use crate::hybrid::state::{Decided, Entry, Grant, Replied, Table, Trip};
use crate::redis::{Limiter as RedisLimiter, RedisFailure, RedisFailureKind, Sharer};
use crate::strategy::{Leasable, LeaseParams};

#[derive(Debug)]
pub(in crate::hybrid) struct Shared<S: Leasable> {
    pub(in crate::hybrid) redis: RedisLimiter<S>,
    pub(in crate::hybrid) table: Table<S>,
    pub(in crate::hybrid) instance: Arc<Instance>,
}

/// An outcome, from a lease or from Redis.
#[derive(Debug, Clone, Copy)]
pub(in crate::hybrid) struct Found<O> {
    pub(in crate::hybrid) outcome: O,
    /// The approximate time by the clock of Redis.
    pub(in crate::hybrid) now: Timestamp,
}

impl<S: Leasable> Shared<S> {
    pub(in crate::hybrid) fn new(redis: RedisLimiter<S>, instance: &Arc<Instance>) -> Arc<Self> {
        let table = Table::new(instance.sync_us);
        Arc::new(Self { redis, table, instance: Arc::clone(instance) })
    }

    /// Returns a lease request for a call that needs `need` units. 0 means that no call waits for it.
    pub(in crate::hybrid) fn lease_request(&self, entry: &mut Entry<S>, need: u64) -> LeaseRequest<S> {
        let ask = entry.holding.ask(self.instance.clock.now(), need);
        self.request(entry, ask, self.instance.sharer())
    }

    pub(super) fn request(&self, entry: &Entry<S>, ask: LeaseParams, sharer: Sharer) -> LeaseRequest<S> {
        let (key, limit) = (entry.key.clone(), entry.holding.limit().clone());
        let (asked_at, deadline) = (self.instance.clock.now(), self.redis.deadline_from_now());
        LeaseRequest { key, limit, ask, sharer, asked_at, deadline, version: entry.version }
    }

    /// Queues a request for the background.
    pub(in crate::hybrid) fn queue(self: &Arc<Self>, request: LeaseRequest<S>) {
        self.instance.queue.push(self.task(request));
    }

    /// Records that a request will not be sent.
    pub(in crate::hybrid) fn withdraw(&self, request: &LeaseRequest<S>) {
        self.table.with(&request.key, |entry| entry.holding.failed(&request.ask, true));
    }

    /// Applies the reply to a request. Returns the outcome of the call that needed it, if the reply decides
    /// it.
    pub(super) fn finish(
        &self,
        request: &LeaseRequest<S>,
        reply: Result<&Grant<S::Outcome>, &RedisFailure>,
    ) -> Option<Found<S::Outcome>> {
        let trip = Trip { asked_at: request.asked_at, answered_at: self.instance.clock.now() };
        let (outcome, waiters) = self.table.with(&request.key, |entry| {
            let outcome = match reply {
                Ok(grant) if entry.version == request.version => {
                    entry.holding.granted(&request.ask, trip, grant)
                }
                Ok(_) => {
                    // The lease was granted under another limit, or before a reset. It is not used, and its
                    // units stay counted until they leave the window.
                    entry.holding.failed(&request.ask, false);
                    None
                }
                Err(failure) => {
                    let is_unspent =
                        matches!(failure.kind(), RedisFailureKind::Unavailable | RedisFailureKind::Refused);
                    entry.holding.failed(&request.ask, is_unspent);
                    None
                }
            };
            (outcome, entry.take_waiters())
        })?;
        let replied: Replied = reply.map(|_| ()).map_err(of_another);
        for waiter in waiters {
            // The waiter may have been dropped.
            let _ = waiter.send(replied.clone());
        }
        Some(Found { outcome: outcome?, now: reply.ok()?.now })
    }

    /// Records that a request was dropped. Its waiters are cancelled and try again.
    pub(super) fn abandon(&self, request: &LeaseRequest<S>, is_sent: bool) {
        let waiters = self.table.with(&request.key, |entry| {
            entry.holding.failed(&request.ask, !is_sent);
            entry.take_waiters()
        });
        drop(waiters);
    }
}

impl<O> Found<O> {
    pub(in crate::hybrid) fn decision<S: Leasable<Outcome = O>>(self, limit: &S::Limit) -> S::Decision<'_> {
        S::decision(limit, self.outcome, DecisionTime::exactly(self.now))
    }
}

impl<O> From<Decided<O>> for Found<O> {
    fn from(decided: Decided<O>) -> Self {
        Self { outcome: decided.outcome, now: decided.now }
    }
}

/// Returns the failure of a request for the calls that waited for it. Their own takes were not sent, so it
/// is `Unavailable`.
fn of_another(failure: &RedisFailure) -> RedisFailure {
    let message = format!("the lease that was waited for: {failure}");
    RedisFailure::new(RedisFailureKind::Unavailable, message)
}
