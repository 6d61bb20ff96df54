//! The state machine of a circuit breaker: stops calls to a server that does not reply, and probes it
//! later. Pure: the time is an argument.

use std::time::Duration;

use crate::clock::Timestamp;

/// The number of consecutive calls without a reply that opens the breaker. Fewer would open it at a single
/// slow moment. More would let more callers wait for their full timeout.
const FAILURES_TO_OPEN: u32 = 5;

/// The minimum pause before a probe. The actual pause is up to twice as long, so that a fleet does not
/// retry in step. Short enough that service resumes well within a second of the server's return.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// The time after which the next call becomes the probe, even if the probe has not ended: the runtime that should poll it
/// may not be polled any more. Longer than a dial and a call usually take.
const LONGEST_PROBE: Duration = Duration::from_secs(2);

/// Counts consecutive failures. When there are enough, it refuses calls, except for one probe after each
/// pause.
#[derive(Debug)]
pub(super) struct BreakerState {
    state: BreakerPhase,
    openings: u64,
    cause: OpenCause,
}

/// The reason why the breaker opened last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenCause {
    NoReplies,
    FailedDial,
}

#[derive(Debug)]
enum BreakerPhase {
    Closed { failures: u32 },
    Open { until: Timestamp },
    Probing { until: Timestamp },
}

/// The kind of an admitted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Usual,
    /// The one call that tests whether the server is back.
    Probe,
}

impl BreakerState {
    pub(super) fn new() -> Self {
        Self { state: BreakerPhase::Closed { failures: 0 }, openings: 0, cause: OpenCause::NoReplies }
    }

    /// Admits a call at `now`; `None` refuses it.
    pub(super) fn admit(&mut self, now: Timestamp) -> Option<Admission> {
        match self.state {
            BreakerPhase::Closed { .. } => Some(Admission::Usual),
            BreakerPhase::Open { until } | BreakerPhase::Probing { until } if now >= until => {
                self.state = BreakerPhase::Probing { until: now + LONGEST_PROBE };
                Some(Admission::Probe)
            }
            BreakerPhase::Open { .. } | BreakerPhase::Probing { .. } => None,
        }
    }

    /// Whether a call would be refused at `now`.
    pub(super) fn is_refusing(&self, now: Timestamp) -> bool {
        match self.state {
            BreakerPhase::Closed { .. } => false,
            BreakerPhase::Open { until } | BreakerPhase::Probing { until } => now < until,
        }
    }

    /// Records a reply, and closes the breaker. A late reply counts too: it shows that the server is there.
    pub(super) fn record_success(&mut self) {
        self.state = BreakerPhase::Closed { failures: 0 };
    }

    /// Records a call without a reply. If that opens the breaker, it refuses calls until `until`.
    pub(super) fn record_failure(&mut self, admission: Admission, until: Timestamp) {
        match (&mut self.state, admission) {
            (BreakerPhase::Closed { failures }, _) => {
                *failures += 1;
                if *failures >= FAILURES_TO_OPEN {
                    self.open(until);
                }
            }
            (BreakerPhase::Probing { .. }, Admission::Probe) => self.open(until),
            // The call was sent before the breaker opened: its failure is no news.
            (BreakerPhase::Open { .. } | BreakerPhase::Probing { .. }, _) => {}
        }
    }

    /// Records that a caller gave up at `now` while the server was being dialled. Opens the breaker again
    /// after each pause, for as long as the dial lasts.
    pub(super) fn record_slow_dial(&mut self, now: Timestamp, until: Timestamp) {
        match self.state {
            BreakerPhase::Closed { .. } => self.record_failure(Admission::Usual, until),
            BreakerPhase::Open { until: end } if now >= end => self.open(until),
            BreakerPhase::Open { .. } | BreakerPhase::Probing { .. } => {}
        }
    }

    /// Records a dial that failed, and opens the breaker until `until`: the server cannot be reached at all.
    pub(super) fn record_failed_dial(&mut self, until: Timestamp) {
        self.open(until);
        self.cause = OpenCause::FailedDial;
    }

    fn open(&mut self, until: Timestamp) {
        self.state = BreakerPhase::Open { until };
        self.openings += 1;
        self.cause = OpenCause::NoReplies;
    }

    /// Returns the reason why the breaker opened last.
    pub(super) fn cause(&self) -> OpenCause {
        self.cause
    }

    /// Records a call that ended without evidence about the server. If it was the probe, the next call
    /// becomes the probe.
    pub(super) fn release(&mut self, admission: Admission, now: Timestamp) {
        if admission == Admission::Probe && matches!(self.state, BreakerPhase::Probing { .. }) {
            self.state = BreakerPhase::Open { until: now };
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, BreakerPhase::Closed { .. })
    }

    /// Returns the number of times that the breaker has opened. A connection older than the last opening
    /// must not be used again: a connection whose packets are silently dropped never reports an error.
    pub(super) fn openings(&self) -> u64 {
        self.openings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_micros(1_000_000);

    fn later(ms: u64) -> Timestamp {
        START + Duration::from_millis(ms)
    }

    fn opened() -> BreakerState {
        let mut breaker = BreakerState::new();
        for _ in 0..FAILURES_TO_OPEN {
            assert_eq!(breaker.admit(START), Some(Admission::Usual));
            breaker.record_failure(Admission::Usual, later(100));
        }
        breaker
    }

    #[test]
    fn five_failures_in_a_row_open_it_and_four_do_not() {
        let mut breaker = BreakerState::new();
        for _ in 1..FAILURES_TO_OPEN {
            breaker.record_failure(Admission::Usual, later(100));
        }
        assert!(breaker.is_closed());
        breaker.record_success();
        for _ in 1..FAILURES_TO_OPEN {
            breaker.record_failure(Admission::Usual, later(100));
        }
        assert_eq!((breaker.admit(START), breaker.openings()), (Some(Admission::Usual), 0));
        breaker.record_failure(Admission::Usual, later(100));
        assert_eq!((breaker.admit(START), breaker.openings()), (None, 1));
    }

    #[test]
    fn one_probe_after_the_pause_decides() {
        let mut breaker = opened();
        assert_eq!(breaker.admit(later(99)), None);
        assert_eq!(breaker.admit(later(100)), Some(Admission::Probe));
        assert_eq!(breaker.admit(later(100)), None);
        breaker.record_failure(Admission::Probe, later(200));
        assert_eq!(breaker.admit(later(199)), None);
        assert_eq!(breaker.admit(later(200)), Some(Admission::Probe));
        breaker.record_success();
        assert_eq!(breaker.admit(later(200)), Some(Admission::Usual));
        assert_eq!(breaker.openings(), 2);
    }

    #[test]
    fn a_probe_that_is_not_polled_any_more_hands_over_after_a_while() {
        let mut breaker = opened();
        assert_eq!(breaker.admit(later(100)), Some(Admission::Probe));
        assert!(breaker.is_refusing(later(2_099)));
        assert!(!breaker.is_refusing(later(2_100)));
        assert_eq!(breaker.admit(later(2_100)), Some(Admission::Probe));
        assert_eq!(breaker.admit(later(2_100)), None);
    }

    #[test]
    fn a_probe_that_leaves_hands_over_to_the_next_call() {
        let mut breaker = opened();
        assert_eq!(breaker.admit(later(100)), Some(Admission::Probe));
        breaker.release(Admission::Usual, later(101));
        assert_eq!(breaker.admit(later(101)), None);
        breaker.release(Admission::Probe, later(101));
        assert_eq!(breaker.admit(later(101)), Some(Admission::Probe));
    }

    #[test]
    fn failures_of_older_calls_do_not_lengthen_the_pause_or_end_the_probe() {
        let mut breaker = opened();
        breaker.record_failure(Admission::Usual, later(500));
        assert_eq!(breaker.admit(later(100)), Some(Admission::Probe));
        breaker.record_failure(Admission::Usual, later(500));
        breaker.record_failure(Admission::Probe, later(200));
        assert_eq!(breaker.admit(later(200)), Some(Admission::Probe));
    }

    #[test]
    fn a_dial_that_outlasts_callers_opens_it_again_after_every_pause() {
        let mut breaker = BreakerState::new();
        for _ in 1..FAILURES_TO_OPEN {
            breaker.record_slow_dial(START, later(100));
        }
        assert!(!breaker.is_refusing(START));
        breaker.record_slow_dial(START, later(100));
        assert!(breaker.is_refusing(later(99)) && !breaker.is_refusing(later(100)));
        breaker.record_slow_dial(later(99), later(200));
        assert!(!breaker.is_refusing(later(100)));
        breaker.record_slow_dial(later(100), later(200));
        assert!(breaker.is_refusing(later(199)));
        assert_eq!((breaker.admit(later(200)), breaker.openings()), (Some(Admission::Probe), 2));
        breaker.record_slow_dial(later(200), later(300));
        assert!(breaker.is_refusing(later(200)), "the probe goes on");
    }

    #[test]
    fn a_server_that_cannot_be_reached_opens_it_at_once() {
        let mut breaker = BreakerState::new();
        breaker.open(later(100));
        assert_eq!(breaker.admit(later(99)), None);
        // The call that dialled ends without a reply. That must not end the pause.
        breaker.release(Admission::Usual, later(1));
        breaker.release(Admission::Probe, later(1));
        assert_eq!(breaker.admit(later(99)), None);
    }
}
