//! One caller of a lane.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::flight::Flight;
use super::{Lane, Terms};
use crate::clock::Timestamp;
use crate::redis::ask::{Answers, Asks};
use crate::redis::failure::{RedisFailure, RedisFailureKind};

/// What a caller is told in the end.
pub(super) type Answer = Result<Answers, RedisFailure>;

/// What a caller asks, and how far it has come.
#[derive(Debug)]
pub(super) struct Seat {
    asks: Asks,
    terms: Terms,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    role: Role,
    answer: Option<Answer>,
    /// Whether the caller was answered or went away.
    is_over: bool,
    waker: Option<Waker>,
}

/// Where a caller is.
#[derive(Debug, Clone)]
enum Role {
    /// Waits for a flight.
    Queued,
    /// Has been taken along by one that is about to start.
    Boarded,
    /// Waits for the reply to this one.
    Riding(Arc<Flight>),
    /// Has nothing left to wait for.
    Landed,
}

impl Seat {
    pub(super) fn new(asks: Asks, terms: Terms) -> Arc<Self> {
        let progress = Progress { role: Role::Queued, answer: None, is_over: false, waker: None };
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

    /// Whether nobody waits for it any more.
    pub(super) fn is_over(&self) -> bool {
        self.progress().is_over
    }

    /// Joins a flight that is about to start, if the caller still waits: from here on it counts as sent.
    pub(super) fn board(&self) -> bool {
        let mut progress = self.progress();
        if !progress.is_over {
            progress.role = Role::Boarded;
        }
        !progress.is_over
    }

    /// Has the caller wait for `flight`; `false` if it went away since it boarded.
    pub(super) fn ride(&self, flight: &Arc<Flight>) -> bool {
        let mut progress = self.progress();
        if !progress.is_over {
            progress.role = Role::Riding(Arc::clone(flight));
        }
        !progress.is_over
    }

    /// What wakes the caller, if it waits to be woken. It is polled then, and waits anew.
    pub(super) fn take_waker(&self) -> Option<Waker> {
        let mut progress = self.progress();
        if progress.is_over { None } else { progress.waker.take() }
    }

    /// Answers, unless the caller's time is up; what wakes it then.
    pub(super) fn land(&self, answer: Answer) -> Option<Waker> {
        let mut progress = self.progress();
        progress.role = Role::Landed;
        if progress.is_over {
            return None;
        }
        progress.answer = Some(answer);
        progress.is_over = true;
        progress.waker.take()
    }

    /// Ends the wait: what was not sent is known to be unspent.
    pub(super) fn time_out(&self) {
        let mut progress = self.progress();
        if progress.is_over {
            return;
        }
        let role = std::mem::replace(&mut progress.role, Role::Landed);
        let failure = if role.call_off() {
            RedisFailure::new(RedisFailureKind::Unavailable, "not sent before the deadline")
        } else {
            RedisFailure::new(RedisFailureKind::OutcomeUnknown, "no reply before the deadline")
        };
        progress.answer = Some(Err(failure));
        progress.is_over = true;
        let waker = progress.waker.take();
        drop(progress);
        role.leave();
        waker.into_iter().for_each(Waker::wake);
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer, or where the caller is; it is woken by `waker` when there is more.
    fn next(&self, waker: &Waker) -> Result<Answer, Role> {
        let mut progress = self.progress();
        if let Some(answer) = progress.answer.take() {
            return Ok(answer);
        }
        if progress.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
            progress.waker = Some(waker.clone());
        }
        Err(progress.role.clone())
    }

    /// The caller goes away; where it was.
    fn leave(&self) -> Role {
        let mut progress = self.progress();
        progress.is_over = true;
        let role = std::mem::replace(&mut progress.role, Role::Landed);
        drop(progress);
        if let Some(unsent) = &self.terms.unsent
            && role.call_off()
        {
            unsent.store(true, Ordering::Release);
        }
        role
    }
}

impl Role {
    /// Makes sure that nothing is sent; `false` if it may have been.
    fn call_off(&self) -> bool {
        match self {
            Self::Queued => true,
            Self::Riding(flight) => flight.call_off(),
            Self::Boarded | Self::Landed => false,
        }
    }

    /// Ends it; not while a seat is locked.
    fn leave(self) {
        if let Self::Riding(flight) = self {
            flight.leave();
        }
    }
}

/// A caller's wait.
pub(super) struct Ride {
    pub(super) lane: Arc<Lane>,
    pub(super) seat: Arc<Seat>,
    /// Whether there is something to do for one that is queued: a flight was free when it came, or it was woken.
    pub(super) is_worth_polling: bool,
}

impl Future for Ride {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let is_worth_polling = std::mem::replace(&mut self.is_worth_polling, true);
        match self.seat.next(context.waker()) {
            Ok(answer) => return Poll::Ready(answer),
            Err(Role::Queued) if is_worth_polling || self.lane.is_work_left() => self.lane.work(),
            Err(Role::Riding(flight)) => {
                if let Some(reply) = flight.advance() {
                    flight.land(reply);
                    self.lane.launch();
                }
            }
            Err(Role::Queued | Role::Boarded | Role::Landed) => {}
        }
        match self.seat.progress().answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        }
    }
}

impl Drop for Ride {
    fn drop(&mut self) {
        match self.seat.leave() {
            // It may have been woken to do what is now left to another.
            Role::Queued => self.lane.wake_queue(),
            role => role.leave(),
        }
    }
}
