//! The state of a limiter, which its clones share: the holdings of all its keys, and their lease requests.

use std::sync::Arc;

use super::instance::Instance;
use super::lease_request::LeaseRequest;
use crate::decision::DecisionTime;
use crate::hybrid::state::{RequestTiming, Table, TableEntry};
use crate::local::TimedOutcome;
use crate::redis::{InstanceLiveness, LeaseResponse, RedisFailure, RedisFailureKind, RedisLimiter};
use crate::strategy::{Leasable, LeaseParams};

#[derive(Debug)]
pub(in crate::hybrid) struct LimiterState<S: Leasable> {
    pub(in crate::hybrid) redis: RedisLimiter<S>,
    pub(in crate::hybrid) table: Table<S>,
    pub(in crate::hybrid) instance: Arc<Instance>,
}

impl<S: Leasable> LimiterState<S> {
    pub(in crate::hybrid) fn new(redis: RedisLimiter<S>, instance: &Arc<Instance>) -> Arc<Self> {
        let table = Table::new(instance.sync_us);
        Arc::new(Self { redis, table, instance: Arc::clone(instance) })
    }

    /// Returns a lease request for a call that needs `need` units. 0 means that no call waits for it.
    pub(in crate::hybrid) fn lease_request(&self, entry: &mut TableEntry<S>, need: u64) -> LeaseRequest<S> {
        let params = entry.holding.start_request(self.instance.clock.now(), need);
        self.request(entry, params, self.instance.live())
    }

    pub(super) fn request(
        &self,
        entry: &TableEntry<S>,
        params: LeaseParams,
        instance: InstanceLiveness,
    ) -> LeaseRequest<S> {
        let (key, limit) = (entry.key.clone(), entry.holding.limit().clone());
        let (requested_at, deadline) = (self.instance.clock.now(), self.redis.deadline_from_now());
        LeaseRequest { key, limit, params, instance, requested_at, deadline, version: entry.version }
    }

    /// Queues a request for the background.
    pub(in crate::hybrid) fn queue(self: &Arc<Self>, request: LeaseRequest<S>) {
        self.instance.queue.push(self.task(request));
    }

    /// Records that a request will not be sent.
    pub(in crate::hybrid) fn withdraw(&self, request: &LeaseRequest<S>) {
        self.table.with(&request.key, |entry| entry.holding.request_failed(&request.params, true));
    }

    /// Applies the reply to a request. Returns the outcome of the call that needed it, if the reply decides
    /// it.
    pub(super) fn finish(
        &self,
        request: &LeaseRequest<S>,
        reply: Result<&LeaseResponse<S::Outcome>, &RedisFailure>,
    ) -> Option<TimedOutcome<S>> {
        let timing =
            RequestTiming { requested_at: request.requested_at, replied_at: self.instance.clock.now() };
        let (outcome, waiters) = self.table.with(&request.key, |entry| {
            let outcome = match reply {
                Ok(grant) if entry.version == request.version => {
                    entry.holding.apply_grant(&request.params, timing, grant)
                }
                Ok(_) => {
                    // The lease was granted under another limit, or before a reset. It is not used, and its
                    // units stay counted until they leave the window.
                    entry.holding.request_failed(&request.params, false);
                    None
                }
                Err(failure) => {
                    let is_unspent =
                        matches!(failure.kind(), RedisFailureKind::Unavailable | RedisFailureKind::Refused);
                    entry.holding.request_failed(&request.params, is_unspent);
                    None
                }
            };
            (outcome, entry.take_waiters())
        })?;
        let result = reply.map(|_| ()).map_err(from_shared_request);
        for waiter in waiters {
            // The waiter may have been dropped.
            let _ = waiter.send(result.clone());
        }
        Some(TimedOutcome { outcome: outcome?, decided_at: DecisionTime::exactly(reply.ok()?.now) })
    }

    /// Records that a request was dropped. Its waiters are cancelled and try again.
    pub(super) fn abandon(&self, request: &LeaseRequest<S>, is_sent: bool) {
        let waiters = self.table.with(&request.key, |entry| {
            entry.holding.request_failed(&request.params, !is_sent);
            entry.take_waiters()
        });
        drop(waiters);
    }
}

/// Returns the failure of a request for the calls that waited for it. Their own takes were not sent, so it
/// is `Unavailable`.
fn from_shared_request(failure: &RedisFailure) -> RedisFailure {
    let message = format!("waited for another call's lease request, which failed: {failure}");
    RedisFailure::new(RedisFailureKind::Unavailable, message)
}
