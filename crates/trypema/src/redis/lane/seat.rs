//! One caller of a lane.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::Lane;
use super::flight::Flight;
use crate::clock::Timestamp;
use crate::redis::ask::{Ask, Told};
use crate::redis::failure::{RedisFailure, RedisFailureKind};

/// What a caller is told in the end.
pub(super) type Answer = Result<Vec<Told>, RedisFailure>;

/// What a caller asks, and how far it has come.
#[derive(Debug)]
pub(super) struct Seat {
    asks: Vec<Ask>,
    deadline: Timestamp,
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

/// What a caller does.
#[derive(Debug, Clone)]
pub(super) enum Role {
    /// Waits for a flight.
    Queued,
    /// Is to start one.
    Leading,
    /// Polls this one.
    Driving(Arc<Flight>),
    /// Waits for one that somebody else polls.
    Riding,
    /// Has nothing left to do.
    Landed,
}

impl Seat {
    pub(super) fn new(asks: Vec<Ask>, deadline: Timestamp) -> Arc<Self> {
        let progress = Progress { role: Role::Queued, answer: None, is_over: false, waker: None };
        Arc::new(Self { asks, deadline, progress: Mutex::new(progress) })
    }

    pub(super) fn asks(&self) -> &[Ask] {
        &self.asks
    }

    /// Whether it asks for one check, which can share a script call with others.
    pub(super) fn is_single(&self) -> bool {
        self.asks.len() == 1
    }

    pub(super) fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Whether nobody waits for it any more.
    pub(super) fn is_over(&self) -> bool {
        self.progress().is_over
    }

    /// Gives a caller that still waits a role, and what wakes it for that: `None` if it does not wait.
    pub(super) fn appoint(&self, role: Role) -> Option<Waker> {
        let mut progress = self.progress();
        if progress.is_over {
            return None;
        }
        progress.role = role;
        // One that was never polled will find its role when it is.
        Some(progress.waker.take().unwrap_or_else(|| Waker::noop().clone()))
    }

    /// Joins a flight that is about to start, if the caller still waits: from here on it counts as sent.
    pub(super) fn board(&self) -> bool {
        let mut progress = self.progress();
        if !progress.is_over {
            progress.role = Role::Riding;
        }
        !progress.is_over
    }

    /// Makes the caller that is being polled the driver; if its time is up it hands over as it leaves.
    pub(super) fn drive(&self, flight: &Arc<Flight>) {
        self.progress().role = Role::Driving(Arc::clone(flight));
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

    /// Ends the wait: what was not sent is known to be unspent. What it had to do is passed on as it leaves.
    pub(super) fn time_out(&self) -> Option<Waker> {
        let mut progress = self.progress();
        if progress.is_over {
            return None;
        }
        let is_unsent = match &progress.role {
            Role::Queued | Role::Leading => true,
            Role::Driving(flight) => flight.call_off(),
            Role::Riding | Role::Landed => false,
        };
        let failure = if is_unsent {
            RedisFailure::new(RedisFailureKind::Unavailable, "not sent before the deadline")
        } else {
            RedisFailure::new(RedisFailureKind::OutcomeUnknown, "no reply before the deadline")
        };
        progress.answer = Some(Err(failure));
        progress.is_over = true;
        progress.waker.take()
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer, or what to do next.
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

    fn leave(&self) -> Role {
        let mut progress = self.progress();
        progress.is_over = true;
        std::mem::replace(&mut progress.role, Role::Landed)
    }
}

/// A caller's wait.
pub(super) struct Ride {
    pub(super) lane: Arc<Lane>,
    pub(super) seat: Arc<Seat>,
}

impl Future for Ride {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        loop {
            match self.seat.next(context.waker()) {
                Ok(answer) => return Poll::Ready(answer),
                Err(Role::Leading) => self.lane.launch(&self.seat),
                Err(Role::Driving(flight)) => match flight.poll(context) {
                    Poll::Ready(()) => {}
                    Poll::Pending => return Poll::Pending,
                },
                Err(Role::Queued | Role::Riding | Role::Landed) => return Poll::Pending,
            }
        }
    }
}

/// Whatever the caller had to do for others is passed on.
impl Drop for Ride {
    fn drop(&mut self) {
        match self.seat.leave() {
            Role::Leading => self.lane.free_flight(),
            Role::Driving(flight) => flight.hand_over(),
            Role::Queued | Role::Riding | Role::Landed => {}
        }
    }
}
