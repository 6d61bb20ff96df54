//! Lease requests. A request that was sent is finished and its reply applied, even if its caller is
//! dropped.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

use super::instance::Instance;
use super::limiter_state::LimiterState;
use super::queue::Task;
use crate::clock::Timestamp;
use crate::local::TimedOutcome;
use crate::redis::{InstanceLiveness, LeaseArgs, LeaseResponse, LeaseSending, RedisFailure, RedisKey};
use crate::strategy::{Leasable, LeaseGrant, LeaseParams, LeasedUnits};

/// A lease request for one key.
#[derive(Debug, Clone)]
pub(in crate::hybrid) struct LeaseRequest<S: Leasable> {
    pub(super) key: RedisKey,
    pub(super) limit: S::Limit,
    pub(super) params: LeaseParams,
    pub(super) instance: InstanceLiveness,
    /// A time before the request is sent. The lease is timed from here.
    pub(super) requested_at: Timestamp,
    /// The time at which the request fails.
    pub(super) deadline: Timestamp,
    pub(super) version: u64,
}

impl<S: Leasable> LeaseRequest<S> {
    /// Returns the request with another deadline.
    pub(in crate::hybrid) fn with_deadline(self, deadline: Timestamp) -> Self {
        Self { deadline, ..self }
    }

    /// Returns the request without its waiting call: the needed units become wanted units, and the call is
    /// not reported.
    pub(in crate::hybrid) fn without_caller(mut self) -> Self {
        let need = std::mem::take(&mut self.params.need);
        self.params.want = self.params.want.max(need);
        self.params.reported = self.params.reported.saturating_sub(need);
        self
    }
}

impl<S: Leasable> LimiterState<S> {
    /// Sends a request and applies the reply. Returns the decision on the call that needed the lease, if the reply
    /// decides it, with the units that the call spent.
    pub(in crate::hybrid) fn send(
        self: &Arc<Self>,
        request: LeaseRequest<S>,
    ) -> impl Future<Output = Result<Option<(TimedOutcome<S>, LeasedUnits)>, RedisFailure>> + Send + use<S>
    {
        let mut unfinished =
            UnfinishedRequest { shared: Arc::clone(self), request, state: SendState::Unsent };
        async move {
            unfinished.state = SendState::Sent;
            let UnfinishedRequest { shared, request, .. } = &unfinished;
            let LeaseRequest { key, limit, params, instance, deadline, .. } = request;
            let args = LeaseArgs { params: *params, instance: *instance };
            let sending = LeaseSending { deadline: *deadline, sent: &shared.instance.leases_sent };
            let grant = shared.redis.send_lease(sending, key, limit, args).await;
            unfinished.state = SendState::Done;
            let UnfinishedRequest { shared, request, .. } = &unfinished;
            let found = shared.finish(request, grant.as_ref());
            let LeaseResponse { lease: LeaseGrant { recorded, origin, .. }, resets, .. } = grant?;
            Ok(found.map(|found| {
                let units = if S::is_admitted(&found.outcome) { request.params.need } else { 0 };
                (found, LeasedUnits { units, recorded, origin, resets })
            }))
        }
    }

    /// Returns a task that sends the request and notifies the observer of a failure. Meanwhile callers can
    /// spend the units that are still held.
    pub(super) fn task(self: &Arc<Self>, request: LeaseRequest<S>) -> Task {
        let (shared, key) = (Arc::clone(self), request.key.clone());
        let reply = self.send(request);
        Box::pin(async move {
            if let Err(failure) = reply.await {
                shared.redis.report_failure(&key, failure);
            }
        })
    }
}

/// A request that may be dropped before it is done.
struct UnfinishedRequest<S: Leasable> {
    shared: Arc<LimiterState<S>>,
    request: LeaseRequest<S>,
    state: SendState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendState {
    Unsent,
    /// The request may have been sent.
    Sent,
    Done,
}

impl<S: Leasable> Drop for UnfinishedRequest<S> {
    fn drop(&mut self) {
        if self.state != SendState::Done {
            self.shared.abandon(&self.request, self.state == SendState::Sent);
        }
    }
}

/// A future that is finished in the background if its caller drops it.
pub(in crate::hybrid) struct FinishInBackground<T: Send + 'static> {
    future: Option<BoxFuture<'static, T>>,
    instance: Arc<Instance>,
}

impl<T: Send + 'static> FinishInBackground<T> {
    pub(in crate::hybrid) fn new(future: BoxFuture<'static, T>, instance: &Arc<Instance>) -> Self {
        Self { future: Some(future), instance: Arc::clone(instance) }
    }
}

impl<T: Send + 'static> Future for FinishInBackground<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        let output = future.as_mut().poll(context);
        if output.is_ready() {
            self.future = None;
        }
        output
    }
}

impl<T: Send + 'static> Drop for FinishInBackground<T> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.instance.queue.push(Box::pin(async move {
                let _ = future.await;
            }));
        }
    }
}
