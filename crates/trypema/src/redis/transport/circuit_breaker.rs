//! The circuit breaker of one server, and the permit that each script call through it holds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::RedisStats;
use super::breaker::{Admission, Breaker, SHORTEST_PAUSE};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::redis::{RedisFailure, RedisFailureKind};

/// Callers may have spent up to one part in `SPENT_IN_QUEUE` of their timeout in the queue. So a sent call
/// that is dropped after the rest of the timeout counts as a failure of the server.
const SPENT_IN_QUEUE: u32 = 2;

#[derive(Debug)]
pub(super) struct CircuitBreaker {
    breaker: Mutex<Breaker>,
    /// A copy of the state in `breaker`, which is read without the lock.
    is_open: AtomicBool,
}

impl CircuitBreaker {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { breaker: Mutex::new(Breaker::new()), is_open: AtomicBool::new(false) })
    }

    /// Returns the failure of a request that must not be queued, because the breaker is open.
    pub(super) fn refusal(&self) -> Option<RedisFailure> {
        let is_refused =
            self.is_open.load(Ordering::Acquire) && self.breaker().is_refusing(SystemClock.now());
        is_refused.then(recently_unanswered)
    }

    /// Admits a script call, or refuses it immediately.
    pub(super) fn acquire(self: &Arc<Self>) -> Result<Permit, RedisFailure> {
        match self.breaker().admit(SystemClock.now()) {
            Some(admission) => {
                Ok(Permit { breaker: Arc::clone(self), admission, suspicious_from: None, is_settled: false })
            }
            None => Err(recently_unanswered()),
        }
    }

    /// Opens the breaker immediately, because the server cannot be reached.
    pub(super) fn trip(&self) {
        self.change(|breaker| breaker.open(pause_end()));
    }

    /// Records that `callers` callers gave up while the server was being dialled.
    pub(super) fn dial_outlasted(&self, callers: u32) {
        let (now, until) = (SystemClock.now(), pause_end());
        self.change(|breaker| (0..callers).for_each(|_| breaker.dial_outlasted(now, until)));
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

    fn change(&self, change: impl FnOnce(&mut Breaker)) {
        let mut breaker = self.breaker();
        change(&mut breaker);
        self.is_open.store(!breaker.is_closed(), Ordering::Release);
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
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
    is_settled: bool,
}

impl Permit {
    /// Records that the call is being sent, for callers whose timeout is about `call_timeout`.
    pub(super) fn sending(&mut self, call_timeout: Duration) {
        self.suspicious_from = Some(SystemClock.now() + call_timeout / SPENT_IN_QUEUE);
    }

    /// Records that the server replied, even if with an error.
    pub(super) fn answered(mut self) {
        self.is_settled = true;
        self.breaker.change(Breaker::succeeded);
    }

    /// Records that the connection broke before a reply arrived.
    pub(super) fn unanswered(mut self) {
        self.is_settled = true;
        self.breaker.change(|breaker| breaker.failed(self.admission, pause_end()));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let (now, admission) = (SystemClock.now(), self.admission);
        match self.suspicious_from {
            Some(from) if now >= from => {
                self.breaker.change(|breaker| breaker.failed(admission, pause_end()))
            }
            _ => self.breaker.change(|breaker| breaker.left(admission, now)),
        }
    }
}

fn recently_unanswered() -> RedisFailure {
    RedisFailure::new(
        RedisFailureKind::Unavailable,
        "recent calls went unanswered; the next try is a moment away",
    )
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
        call_timeout.into_iter().for_each(|timeout| permit.sending(timeout));
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
                breaker.acquire().unwrap().unanswered();
            }
            breaker.acquire().unwrap().answered();
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
