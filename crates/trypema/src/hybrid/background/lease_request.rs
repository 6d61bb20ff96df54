//! Lease requests. A request that was sent is finished and its reply applied, even if its caller is
//! dropped.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

use super::instance::Instance;
use super::queue::Task;
use super::shared::{Found, Shared};
use crate::clock::Timestamp;
use crate::hybrid::state::Grant;
use crate::redis::{RedisFailure, RedisKey, Sharer};
use crate::strategy::{Leasable, LeaseParams, UnspentUnits};

/// A lease request for one key.
#[derive(Debug, Clone)]
pub(in crate::hybrid) struct LeaseRequest<S: Leasable> {
    pub(super) key: RedisKey,
    pub(super) limit: S::Limit,
    pub(super) ask: LeaseParams,
    pub(super) sharer: Sharer,
    /// A time before the request is sent. The lease is timed from here.
    pub(super) asked_at: Timestamp,
    /// The time at which the request fails.
    pub(super) deadline: Timestamp,
    pub(super) version: u64,
}

impl<S: Leasable> LeaseRequest<S> {
    /// Returns the request with another deadline.
    pub(in crate::hybrid) fn until(self, deadline: Timestamp) -> Self {
        Self { deadline, ..self }
    }

    /// Returns the request without its waiting call: the needed units become wanted units, and the call is
    /// not reported.
    pub(in crate::hybrid) fn for_nobody(mut self) -> Self {
        let need = std::mem::take(&mut self.ask.need);
        self.ask.want = self.ask.want.max(need);
        self.ask.reported = self.ask.reported.saturating_sub(need);
        self
    }
}

/// The reply to a request, for the call that needed the lease.
#[derive(Debug)]
pub(in crate::hybrid) struct LeaseReply<O> {
    /// The decision on that call, if the reply decides it.
    pub(in crate::hybrid) found: Option<Found<O>>,
    /// The units that the call spent, and the time at which Redis recorded them.
    pub(in crate::hybrid) spent: Option<UnspentUnits>,
}

impl<S: Leasable> Shared<S> {
    /// Sends a request and applies the reply.
    pub(in crate::hybrid) fn send(
        self: &Arc<Self>,
        request: LeaseRequest<S>,
    ) -> impl Future<Output = Result<LeaseReply<S::Outcome>, RedisFailure>> + Send + use<S> {
        let mut unfinished = Unfinished { shared: Arc::clone(self), request, progress: Progress::Unsent };
        async move {
            unfinished.progress = Progress::Sent;
            let Unfinished { shared, request, .. } = &unfinished;
            shared.instance.count_lease();
            let of_key = (&request.key, &request.limit);
            let told = shared.redis.lease_by(request.deadline, of_key, (request.ask, request.sharer)).await;
            unfinished.progress = Progress::Done;
            let Unfinished { shared, request, .. } = &unfinished;
            let grant = told.map(|told| Grant { leased: told.leased, now: told.now, resets: told.resets });
            let found = shared.finish(request, grant.as_ref());
            let grant = grant?;
            let is_spent = found.as_ref().is_some_and(|found| S::is_admitted(&found.outcome));
            let recorded = grant.leased.recorded;
            let back = UnspentUnits { units: request.ask.need, recorded, resets: grant.resets };
            Ok(LeaseReply { found, spent: is_spent.then_some(back) })
        }
    }

    /// Returns a task that sends the request and notifies the observer of a failure. Meanwhile callers can
    /// spend the units that are still held.
    pub(super) fn task(self: &Arc<Self>, request: LeaseRequest<S>) -> Task {
        let (shared, key) = (Arc::clone(self), request.key.clone());
        let reply = self.send(request);
        Box::pin(async move {
            if let Err(failure) = reply.await {
                shared.redis.failed(&key, failure);
            }
        })
    }
}

/// A request that may be dropped before it is done.
struct Unfinished<S: Leasable> {
    shared: Arc<Shared<S>>,
    request: LeaseRequest<S>,
    progress: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Unsent,
    /// The request may have been sent.
    Sent,
    Done,
}

impl<S: Leasable> Drop for Unfinished<S> {
    fn drop(&mut self) {
        if self.progress != Progress::Done {
            self.shared.abandon(&self.request, self.progress == Progress::Sent);
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
