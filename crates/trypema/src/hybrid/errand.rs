//! Asking Redis for a lease, and what to do with the answer if nobody waits for it any more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::holding::Grant;
use super::hub::{Errand, Hub};
use super::shared::{Found, Shared};
use crate::clock::Timestamp;
use crate::redis::{RedisFailure, RedisKey, Sharer};
use crate::strategy::{Back, Leasable, LeaseAsk};

/// A lease to ask for.
#[derive(Debug, Clone)]
pub(super) struct Job<S: Leasable> {
    pub(super) key: RedisKey,
    pub(super) limit: S::Limit,
    pub(super) ask: LeaseAsk,
    pub(super) sharer: Sharer,
    /// Not after it is sent: the lease is timed from here.
    pub(super) asked_at: Timestamp,
    /// When it is given up.
    pub(super) deadline: Timestamp,
    pub(super) version: u64,
}

impl<S: Leasable> Job<S> {
    /// The same job, when nobody waits for what was needed: then it is wanted.
    pub(super) fn for_nobody(mut self) -> Self {
        let need = std::mem::take(&mut self.ask.need);
        self.ask.want = self.ask.want.max(need);
        self.ask.seen = self.ask.seen.saturating_sub(need);
        self
    }
}

/// What a job's caller is told.
#[derive(Debug)]
pub(super) struct Answer<O> {
    /// What was decided, if it was.
    pub(super) found: Option<Found<O>>,
    /// What it spent, and where that was recorded.
    pub(super) spent: Option<Back>,
}

impl<S: Leasable> Shared<S> {
    /// Asks for a lease and notes the answer.
    pub(super) fn run(
        self: &Arc<Self>,
        job: Job<S>,
    ) -> impl Future<Output = Result<Answer<S::Outcome>, RedisFailure>> + Send + use<S> {
        let mut unfinished = Unfinished { shared: Arc::clone(self), job, progress: Progress::Unsent };
        async move {
            unfinished.progress = Progress::Sent;
            let Unfinished { shared, job, .. } = &unfinished;
            shared.hub.count_ask();
            let asked = (job.ask, job.sharer);
            let told = shared.redis.lease_by(job.deadline, (&job.key, &job.limit), asked).await;
            unfinished.progress = Progress::Done;
            let Unfinished { shared, job, .. } = &unfinished;
            let grant = told.map(|told| Grant { leased: told.leased, now: told.now, resets: told.resets });
            let found = shared.finish(job, grant.as_ref());
            let grant = grant?;
            let is_spent = found.as_ref().is_some_and(|found| S::is_admitted(&found.outcome));
            let back = Back { units: job.ask.need, recorded: grant.leased.recorded, resets: grant.resets };
            Ok(Answer { found, spent: is_spent.then_some(back) })
        }
    }

    /// A job for the background, which tells the observer of a failure; what is held is spent meanwhile.
    pub(super) fn errand(self: &Arc<Self>, job: Job<S>) -> Errand {
        let (shared, key) = (Arc::clone(self), job.key.clone());
        let run = self.run(job);
        Box::pin(async move {
            if let Err(failure) = run.await {
                shared.redis.failed(&key, failure);
            }
        })
    }
}

/// A job that may be dropped half-way. Whoever waits for it tries again.
struct Unfinished<S: Leasable> {
    shared: Arc<Shared<S>>,
    job: Job<S>,
    progress: Progress,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Unsent,
    /// It may have been.
    Sent,
    Done,
}

impl<S: Leasable> Drop for Unfinished<S> {
    fn drop(&mut self) {
        if self.progress != Progress::Done {
            self.shared.abandon(&self.job, self.progress == Progress::Sent);
        }
    }
}

/// An errand in a caller's hands. If the caller goes away the background brings it to its end, so that a lease that was
/// granted is not lost.
pub(super) struct Driven<T: Send + 'static> {
    errand: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    hub: Arc<Hub>,
}

impl<T: Send + 'static> Driven<T> {
    pub(super) fn new(errand: Pin<Box<dyn Future<Output = T> + Send>>, hub: Arc<Hub>) -> Self {
        Self { errand: Some(errand), hub }
    }
}

impl<T: Send + 'static> Future for Driven<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(errand) = &mut self.errand else { return Poll::Pending };
        let answer = errand.as_mut().poll(context);
        if answer.is_ready() {
            self.errand = None;
        }
        answer
    }
}

impl<T: Send + 'static> Drop for Driven<T> {
    fn drop(&mut self) {
        if let Some(errand) = self.errand.take() {
            self.hub.leave(Box::pin(async move {
                let _ = errand.await;
            }));
        }
    }
}
