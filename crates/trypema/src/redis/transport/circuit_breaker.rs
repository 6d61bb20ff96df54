//! The circuit breaker of one server, and the permit that each script call through it holds.

mod state;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::RedisStats;
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::redis::{RedisFailure, RedisFailureKind};
use state::{Admission, BreakerState, OpenCause, SHORTEST_PAUSE};

/// Up to half of a caller's timeout (one part in `SPENT_IN_QUEUE`) may have passed in the queue. If a sent
/// call is dropped after the other half, that counts as a failure of the server.
const SPENT_IN_QUEUE: u32 = 2;

#[derive(Debug)]
pub(super) struct CircuitBreaker {
    breaker: Mutex<BreakerState>,
    /// A copy of the state in `breaker`, which is read without the lock.
    is_open: AtomicBool,
}

impl CircuitBreaker {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { breaker: Mutex::new(BreakerState::new()), is_open: AtomicBool::new(false) })
    }

    /// Returns the failure of a request that must not be queued, because the breaker is open.
    pub(super) fn refusal(&self) -> Option<RedisFailure> {
        if !self.is_open() {
            return None;
        }
        let breaker = self.breaker();
        breaker.is_refusing(SystemClock.now()).then(|| open_failure(breaker.cause()))
    }

    /// Admits a script call, or refuses it immediately.
    pub(super) fn acquire(self: &Arc<Self>) -> Result<Permit, RedisFailure> {
        let mut breaker = self.breaker();
        match breaker.admit(SystemClock.now()) {
            Some(admission) => {
                Ok(Permit { breaker: Arc::clone(self), admission, suspicious_from: None, is_reported: false })
            }
            None => Err(open_failure(breaker.cause())),
        }
    }

    /// Opens the breaker immediately, because the server cannot be reached.
    pub(super) fn trip(&self) {
        self.change(|breaker| breaker.record_failed_dial(pause_end()));
    }

    /// Records that `callers` callers gave up while the server was being dialled.
    pub(super) fn record_slow_dial(&self, callers: u32) {
        let (now, until) = (SystemClock.now(), pause_end());
        self.change(|breaker| (0..callers).for_each(|_| breaker.record_slow_dial(now, until)));
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    pub(super) fn openings(&self) -> u64 {
        self.breaker().openings()
    }

    pub(super) fn stats(&self) -> RedisStats {
        RedisStats { open_breakers: usize::from(self.is_open()), breaker_openings: self.openings() }
    }

    fn change(&self, change: impl FnOnce(&mut BreakerState)) {
        let mut breaker = self.breaker();
        change(&mut breaker);
        self.is_open.store(!breaker.is_closed(), Ordering::Release);
    }

    fn breaker(&self) -> MutexGuard<'_, BreakerState> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An admitted script call. Dropping an unsettled permit means that its callers gave up.
#[derive(Debug)]
pub(super) struct Permit {
    breaker: Arc<CircuitBreaker>,
    admission: Admission,
    /// The time from which dropping the permit counts as a failure of the server; `None` before the call is
    /// sent.
    suspicious_from: Option<Timestamp>,
    is_reported: bool,
}

impl Permit {
    /// Records that the call is being sent, for callers whose timeout is about `call_timeout`.
    pub(super) fn start_call(&mut self, call_timeout: Duration) {
        self.suspicious_from = Some(SystemClock.now() + call_timeout / SPENT_IN_QUEUE);
    }

    /// Records that the server replied, even if with an error.
    pub(super) fn succeed(mut self) {
        self.is_reported = true;
        self.breaker.change(BreakerState::record_success);
    }

    /// Records that the connection broke before a reply arrived.
    pub(super) fn fail(mut self) {
        self.is_reported = true;
        self.breaker.change(|breaker| breaker.record_failure(self.admission, pause_end()));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.is_reported {
            return;
        }
        let (now, admission) = (SystemClock.now(), self.admission);
        match self.suspicious_from {
            Some(from) if now >= from => {
                self.breaker.change(|breaker| breaker.record_failure(admission, pause_end()))
            }
            _ => self.breaker.change(|breaker| breaker.release(admission, now)),
        }
    }
}

fn open_failure(cause: OpenCause) -> RedisFailure {
    let message = match cause {
        OpenCause::NoReplies => {
            "circuit breaker open after calls without a reply; the next probe is within 200 ms"
        }
        OpenCause::FailedDial => "circuit breaker open after a failed dial; the next probe is within 200 ms",
    };
    RedisFailure::new(RedisFailureKind::Unavailable, message)
}

fn pause_end() -> Timestamp {
    SystemClock.now() + jittered(SHORTEST_PAUSE)
}

/// Returns a random duration from `least` up to twice as long.
pub(super) fn jittered(least: Duration) -> Duration {
    least + crate::jitter::below(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    fn give_up(breaker: &Arc<CircuitBreaker>, call_timeout: Option<Duration>) {
        let mut permit = breaker.acquire().unwrap();
        call_timeout.into_iter().for_each(|timeout| permit.start_call(timeout));
    }

    #[test]
    fn calls_given_up_after_the_deadline_open_it_and_earlier_ones_do_not() {
        let breaker = CircuitBreaker::new();
        for _ in 0..20 {
            give_up(&breaker, None);
            give_up(&breaker, Some(LONG));
        }
        assert!(!breaker.is_open() && breaker.refusal().is_none());
        for _ in 0..5 {
            give_up(&breaker, Some(Duration::ZERO));
        }
        let failure = breaker.acquire().unwrap_err();
        assert_eq!(failure.kind(), RedisFailureKind::Unavailable);
        assert_eq!((breaker.refusal(), breaker.openings()), (Some(failure), 1));
    }

    #[test]
    fn a_reply_forgives_earlier_failures() {
        let breaker = CircuitBreaker::new();
        for _ in 0..20 {
            for _ in 0..4 {
                breaker.acquire().unwrap().fail();
            }
            breaker.acquire().unwrap().succeed();
        }
        assert!(!breaker.is_open());
    }

    #[test]
    fn jitter_adds_less_than_the_least() {
        let least = Duration::from_millis(100);
        let drawn: Vec<_> = (0..100).map(|_| jittered(least)).collect();
        assert!(drawn.iter().all(|pause| (least..2 * least).contains(pause)));
        assert!(drawn.iter().any(|pause| *pause != drawn[0]));
        assert_eq!(jittered(Duration::ZERO), Duration::ZERO);
    }
}
