//! The breaker in front of one connection, and the pass that each call through it holds.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::RedisStats;
use super::breaker::{Admission, Breaker, SHORTEST_PAUSE};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::redis::{RedisFailure, RedisFailureKind};

/// Of the deadline a caller may have spent up to this part elsewhere (in a batch that was being gathered)
/// before its call came here. So giving up after the rest of it is a failure of the server.
const SPENT_ELSEWHERE: u32 = 2;

#[derive(Debug)]
pub(super) struct Gate {
    breaker: Mutex<Breaker>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self { breaker: Mutex::new(Breaker::new()) }
    }

    /// Lets a call through that will be given up at about `deadline`, or turns it away at once.
    pub(super) fn enter(&self, deadline: Duration) -> Result<Pass<'_>, RedisFailure> {
        let entered = SystemClock.now();
        match self.breaker().admit(entered) {
            Some(admission) => Ok(Pass {
                gate: self,
                admission,
                suspicious_from: entered + deadline / SPENT_ELSEWHERE,
                is_settled: false,
            }),
            None => Err(RedisFailure::new(
                RedisFailureKind::Unavailable,
                "recent calls went unanswered; the next try is a moment away",
            )),
        }
    }

    /// The server cannot be reached: turn calls away from here on.
    pub(super) fn shut(&self) {
        self.breaker().open(pause_end());
    }

    pub(super) fn is_closed(&self) -> bool {
        self.breaker().is_closed()
    }

    pub(super) fn openings(&self) -> u64 {
        self.breaker().openings()
    }

    pub(super) fn stats(&self) -> RedisStats {
        let breaker = self.breaker();
        RedisStats { open_breakers: usize::from(!breaker.is_closed()), breaker_openings: breaker.openings() }
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that was let through. Dropping it unsettled means that its caller gave up.
#[derive(Debug)]
pub(super) struct Pass<'g> {
    gate: &'g Gate,
    admission: Admission,
    suspicious_from: Timestamp,
    is_settled: bool,
}

impl Pass<'_> {
    /// The server replied, be it with an error.
    pub(super) fn answered(mut self) {
        self.is_settled = true;
        self.gate.breaker().succeeded();
    }

    /// The call was sent and the connection broke.
    pub(super) fn unanswered(mut self) {
        self.is_settled = true;
        self.gate.breaker().failed(self.admission, pause_end());
    }

    /// The call was never sent; what kept it from being sent was counted there.
    pub(super) fn unused(mut self) {
        self.is_settled = true;
        self.gate.breaker().left(self.admission, SystemClock.now());
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let now = SystemClock.now();
        if now >= self.suspicious_from {
            self.gate.breaker().failed(self.admission, pause_end());
        } else {
            self.gate.breaker().left(self.admission, now);
        }
    }
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

    #[test]
    fn calls_given_up_after_the_deadline_shut_it_and_earlier_ones_do_not() {
        let gate = Gate::new();
        for _ in 0..20 {
            drop(gate.enter(LONG).unwrap());
        }
        assert!(gate.is_closed());
        for _ in 0..5 {
            drop(gate.enter(Duration::ZERO).unwrap());
        }
        let failure = gate.enter(LONG).unwrap_err();
        assert_eq!(failure.kind(), RedisFailureKind::Unavailable);
        assert_eq!(gate.openings(), 1);
    }

    #[test]
    fn a_reply_forgives_earlier_failures() {
        let gate = Gate::new();
        for _ in 0..20 {
            for _ in 0..4 {
                gate.enter(LONG).unwrap().unanswered();
            }
            gate.enter(LONG).unwrap().answered();
        }
        assert!(gate.is_closed());
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
