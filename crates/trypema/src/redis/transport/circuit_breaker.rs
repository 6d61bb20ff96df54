//! The circuit breaker of one server, and the permit that each script call through it holds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::RedisStats;
use super::breaker::{Admission, Breaker, SHORTEST_PAUSE};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::redis::{RedisFailure, RedisFailureKind};

/// Callers may have spent up to this part of their time in the queue. So giving up after the rest of it is a failure of the server.
const SPENT_IN_QUEUE: u32 = 2;

#[derive(Debug)]
pub(super) struct CircuitBreaker {
    breaker: Mutex<Breaker>,
    /// Also in `breaker`; here so that asking costs no lock.
    is_open: AtomicBool,
}

impl CircuitBreaker {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { breaker: Mutex::new(Breaker::new()), is_open: AtomicBool::new(false) })
    }

    /// Why a request should not even be queued, if that is so.
    pub(super) fn refusal(&self) -> Option<RedisFailure> {
        let is_refused =
            self.is_open.load(Ordering::Acquire) && self.breaker().is_refusing(SystemClock.now());
        is_refused.then(recently_unanswered)
    }

    /// Admits a script call, or refuses it at once.
    pub(super) fn acquire(self: &Arc<Self>) -> Result<Permit, RedisFailure> {
        match self.breaker().admit(SystemClock.now()) {
            Some(admission) => {
                Ok(Permit { breaker: Arc::clone(self), admission, suspicious_from: None, is_settled: false })
            }
            None => Err(recently_unanswered()),
        }
    }

    /// The server cannot be reached: refuses calls from here on.
    pub(super) fn trip(&self) {
        self.change(|breaker| breaker.open(pause_end()));
    }

    /// So many callers gave up while the server was being dialled.
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

/// An admitted script call. Dropping it unsettled means that its callers gave up.
#[derive(Debug)]
pub(super) struct Permit {
    breaker: Arc<CircuitBreaker>,
    admission: Admission,
    /// From here on giving up is a failure of the server; `None` while nothing has been sent.
    suspicious_from: Option<Timestamp>,
    is_settled: bool,
}

impl Permit {
    /// The call is being sent, for callers that wait about `call_timeout` in all.
    pub(super) fn sending(&mut self, call_timeout: Duration) {
        self.suspicious_from = Some(SystemClock.now() + call_timeout / SPENT_IN_QUEUE);
    }

    /// The server replied, be it with an error.
    pub(super) fn answered(mut self) {
        self.is_settled = true;
        self.breaker.change(Breaker::succeeded);
    }

    /// The call was sent and the connection broke.
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

/// From `least` up to twice as long, different in every process and at every call.
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
