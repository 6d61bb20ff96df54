//! One caller of a batcher, and its wait for the reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{Batcher, unavailable};
use crate::clock::Timestamp;
use crate::redis::ask::{Answers, Asks};
use crate::redis::failure::{RedisFailure, RedisFailureKind};

/// What a caller wants besides an answer.
#[derive(Debug, Clone)]
pub(in crate::redis) struct Terms {
    /// When it gives up.
    pub(in crate::redis) deadline: Timestamp,
    /// Set when it goes away and nothing was, or will be, sent for it.
    pub(in crate::redis) unsent: Option<Arc<AtomicBool>>,
}

impl Terms {
    /// Gives up at `deadline`.
    pub(in crate::redis) fn until(deadline: Timestamp) -> Self {
        Self { deadline, unsent: None }
    }
}

/// What a caller is told in the end.
pub(super) type Reply = Result<Answers, RedisFailure>;

/// A request with its one-shot reply, shared by the caller, the queue or batch, and the timer.
#[derive(Debug)]
pub(super) struct PendingRequest {
    asks: Asks,
    terms: Terms,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    stage: Stage,
    reply: Option<Reply>,
    waker: Option<Waker>,
}

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Queued,
    /// In a batch: it may run from here on.
    Sent,
    /// Has its reply, or its caller is gone.
    Finished,
}

impl PendingRequest {
    pub(super) fn new(asks: Asks, terms: Terms) -> Arc<Self> {
        let progress = Progress { stage: Stage::Queued, reply: None, waker: None };
        Arc::new(Self { asks, terms, progress: Mutex::new(progress) })
    }

    pub(super) fn asks(&self) -> &Asks {
        &self.asks
    }

    /// Whether it asks for one check.
    pub(super) fn is_single(&self) -> bool {
        matches!(self.asks, Asks::One(_))
    }

    pub(super) fn deadline(&self) -> Timestamp {
        self.terms.deadline
    }

    /// Whether nobody waits for the reply any more.
    pub(super) fn is_finished(&self) -> bool {
        self.progress().stage == Stage::Finished
    }

    /// Takes it into a batch; `false` if its caller is gone, so that it is not sent.
    pub(super) fn mark_sent(&self) -> bool {
        let mut progress = self.progress();
        let is_queued = progress.stage == Stage::Queued;
        if is_queued {
            progress.stage = Stage::Sent;
        }
        is_queued
    }

    /// Delivers the reply, unless the caller is gone or was told that its time is up; the caller's waker.
    pub(super) fn complete(&self, reply: Reply) -> Option<Waker> {
        self.progress().finish(reply)
    }

    /// Ends the wait at the deadline; how far it had come. A request that is still queued is known to be unspent.
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

    fn poll(&self, waker: &Waker) -> Poll<Reply> {
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

    /// Ends the wait because the caller is dropped; how far it had come.
    fn cancel(&self) -> Stage {
        let mut progress = self.progress();
        let stage = std::mem::replace(&mut progress.stage, Stage::Finished);
        // Dropping a waker may run code of the executor's: not later, under the batcher's lock.
        let waker = progress.waker.take();
        drop(progress);
        drop(waker);
        if let (Stage::Queued, Some(unsent)) = (stage, &self.terms.unsent) {
            unsent.store(true, Ordering::Release);
        }
        stage
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    fn finish(&mut self, reply: Reply) -> Option<Waker> {
        if self.stage == Stage::Finished {
            return None;
        }
        self.stage = Stage::Finished;
        self.reply = Some(reply);
        self.waker.take()
    }
}

/// A caller's wait. Dropping it cancels the request if that has not been sent.
pub(super) struct WaitForReply<'b> {
    pub(super) batcher: &'b Batcher,
    pub(super) request: Arc<PendingRequest>,
}

impl Future for WaitForReply<'_> {
    type Output = Reply;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
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
