//! A queued or sent request, and its caller's wait for the reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{Batcher, unavailable};
use crate::clock::Timestamp;
use crate::redis::failure::{RedisFailure, RedisFailureKind};
use crate::redis::protocol::{CheckReplyResult, CheckRequest};

/// The conditions under which a caller waits.
#[derive(Debug, Clone)]
pub(in crate::redis) struct CallOptions {
    /// The time at which the caller gives up.
    pub(in crate::redis) deadline: Timestamp,
    /// The number of checks that are spent all or nothing. They are the first; the others are spent independently.
    pub(in crate::redis) atomic: usize,
    /// Set when the caller is dropped and its request was not, and will not be, sent.
    pub(in crate::redis) unsent: Option<Arc<AtomicBool>>,
    /// Counts the request when it is sent.
    pub(in crate::redis) sent: Option<Arc<AtomicU64>>,
}

impl CallOptions {
    /// Returns options with this deadline.
    pub(in crate::redis) fn with_deadline(deadline: Timestamp) -> Self {
        Self { deadline, atomic: 0, unsent: None, sent: None }
    }
}

/// The result that a caller gets: one for each of its checks.
pub(super) type RequestResult = Result<Vec<CheckReplyResult>, RedisFailure>;

/// A request with its one-shot reply. The caller, the timer, and the queue or batch share it.
#[derive(Debug)]
pub(super) struct PendingRequest {
    /// The checks of one caller, usually one.
    checks: Vec<CheckRequest>,
    options: CallOptions,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    stage: Stage,
    reply: Option<RequestResult>,
    waker: Option<Waker>,
}

/// The progress of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Queued,
    /// In a batch. From here on the script may have run.
    Sent,
    /// The reply is there, or the caller is gone.
    Finished,
}

impl PendingRequest {
    pub(super) fn new(checks: Vec<CheckRequest>, options: CallOptions) -> Arc<Self> {
        let progress = Progress { stage: Stage::Queued, reply: None, waker: None };
        Arc::new(Self { checks, options, progress: Mutex::new(progress) })
    }

    pub(super) fn checks(&self) -> &[CheckRequest] {
        &self.checks
    }

    /// Returns the number of checks that are spent all or nothing, if there are several.
    pub(super) fn atomic(&self) -> usize {
        if self.options.atomic > 1 { self.options.atomic.min(self.checks.len()) } else { 0 }
    }

    pub(super) fn deadline(&self) -> Timestamp {
        self.options.deadline
    }

    /// Whether no caller waits for a reply any more.
    pub(super) fn is_finished(&self) -> bool {
        self.progress().stage == Stage::Finished
    }

    /// Marks the request as part of a batch. Returns `false` if its caller is gone; it must not be sent
    /// then.
    pub(super) fn mark_sent(&self) -> bool {
        let mut progress = self.progress();
        let is_queued = progress.stage == Stage::Queued;
        if is_queued {
            progress.stage = Stage::Sent;
            if let Some(sent) = &self.options.sent {
                sent.fetch_add(1, Ordering::Relaxed);
            }
        }
        is_queued
    }

    /// Delivers the reply, unless the request is finished already. Returns the caller's waker.
    pub(super) fn complete(&self, reply: RequestResult) -> Option<Waker> {
        self.progress().finish(reply)
    }

    /// Fails the request because its deadline has passed. Returns its previous stage. A request that was
    /// still queued has spent nothing.
    pub(super) fn time_out(&self) -> Stage {
        let mut progress = self.progress();
        let stage = progress.stage;
        let failure = match stage {
            Stage::Queued => unavailable("not sent before the deadline"),
            Stage::Sent => {
                RedisFailure::new(RedisFailureKind::OutcomeUnknown, "no reply before the deadline")
            }
            Stage::Finished => return stage,
        };
        let waker = progress.finish(Err(failure));
        drop(progress);
        waker.into_iter().for_each(Waker::wake);
        stage
    }

    fn poll(&self, waker: &Waker) -> Poll<RequestResult> {
        let mut progress = self.progress();
        if let Some(reply) = progress.reply.take() {
            return Poll::Ready(reply);
        }
        match &mut progress.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        Poll::Pending
    }

    /// Finishes the request because its caller was dropped. Returns its previous stage.
    fn cancel(&self) -> Stage {
        let mut progress = self.progress();
        let stage = std::mem::replace(&mut progress.stage, Stage::Finished);
        // Drop the waker here: its destructor may run code of the executor, which must not run under the
        // batcher's lock.
        let waker = progress.waker.take();
        drop(progress);
        drop(waker);
        if let (Stage::Queued, Some(unsent)) = (stage, &self.options.unsent) {
            unsent.store(true, Ordering::Release);
        }
        stage
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    fn finish(&mut self, reply: RequestResult) -> Option<Waker> {
        if self.stage == Stage::Finished {
            return None;
        }
        self.stage = Stage::Finished;
        self.reply = Some(reply);
        self.waker.take()
    }
}

/// A caller's wait for the reply. Dropping it cancels a request that has not been sent.
pub(super) struct WaitForReply<'b> {
    pub(super) batcher: &'b Batcher,
    pub(super) request: Arc<PendingRequest>,
}

impl Future for WaitForReply<'_> {
    type Output = RequestResult;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<RequestResult> {
        self.request.poll(context.waker())
    }
}

impl Drop for WaitForReply<'_> {
    fn drop(&mut self) {
        let stage = self.request.cancel();
        if stage == Stage::Sent {
            self.batcher.callers_gone(std::iter::once(stage));
        }
    }
}
