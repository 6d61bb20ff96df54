//! Work that many callers need and one runs for all: a dial, fetching the slot table, querying the
//! sentinels.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::circuit_breaker::jittered;
use crate::clock::{Clock, ClockSource, SystemClock, Timestamp};
use crate::waiting::{Sleep, with_timeout};

/// The time after which a run counts as lost with its runtime, so that the next caller starts another.
/// Longer than any dial with all its retries at other addresses.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// Runs at most one piece of work at a time, with a minimum interval between two starts.
pub(super) struct SingleFlight {
    interval: Duration,
    state: Mutex<FlightState>,
    ended: Notify,
}

struct FlightState {
    next_start: Timestamp,
    running_until: Option<Timestamp>,
}

/// The result of [`SingleFlight::run`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RunResult {
    /// The work is done, by this call or by the one that it waited for.
    Done,
    /// The last run started less than the interval ago.
    TooSoon,
}

impl SingleFlight {
    /// Returns a value whose runs start at least `interval` apart. The actual interval is up to twice as
    /// long.
    pub(super) fn new(interval: Duration) -> Self {
        Self::starting_at(Timestamp::default(), interval)
    }

    /// Same as [`new`](Self::new), for work that something else has just done: the first run waits, too.
    pub(super) fn after_interval(interval: Duration) -> Self {
        Self::starting_at(SystemClock.now() + jittered(interval), interval)
    }

    fn starting_at(next_start: Timestamp, interval: Duration) -> Self {
        let state = FlightState { next_start, running_until: None };
        Self { interval, state: Mutex::new(state), ended: Notify::new() }
    }

    /// Whether a call of `run` would start the work now.
    pub(super) fn is_due(&self) -> bool {
        let (state, now) = (self.state(), SystemClock.now());
        state.running(now).is_none() && now >= state.next_start
    }

    /// Runs `work`, or waits for the run in progress.
    pub(super) async fn run(&self, work: impl Future<Output = ()>) -> RunResult {
        let now = SystemClock.now();
        let under_way = {
            let mut state = self.state();
            let under_way = state.running(now).map(|until| (self.ended.notified(), until));
            if under_way.is_none() {
                if now < state.next_start {
                    return RunResult::TooSoon;
                }
                state.next_start = now + jittered(self.interval);
                state.running_until = Some(now + LOST_AFTER);
            }
            under_way
        };
        if let Some((ended, until)) = under_way {
            with_timeout(ended, Sleep::until(&ClockSource::System, until)).await;
            return RunResult::Done;
        }
        let _running = RunningGuard(self);
        work.await;
        RunResult::Done
    }

    fn state(&self) -> MutexGuard<'_, FlightState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FlightState {
    fn running(&self, now: Timestamp) -> Option<Timestamp> {
        self.running_until.filter(|until| *until > now)
    }
}

/// Ends the run when it is dropped, even if the work is cancelled.
struct RunningGuard<'s>(&'s SingleFlight);

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.0.state().running_until = None;
        self.0.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn one_runs_and_the_others_wait_for_its_end() {
        let dial = SingleFlight::new(Duration::from_secs(3_600));
        assert!(dial.is_due());
        let mut first = Box::pin(dial.run(pending()));
        assert_eq!(poll(first.as_mut()), Poll::Pending);
        assert!(!dial.is_due());
        let mut second = pin!(dial.run(async { panic!("begun twice") }));
        assert_eq!(poll(second.as_mut()), Poll::Pending);
        drop(first);
        assert_eq!(poll(second.as_mut()), Poll::Ready(RunResult::Done));
        assert_eq!(poll(pin!(dial.run(async { panic!("begun too soon") }))), Poll::Ready(RunResult::TooSoon));
    }

    #[test]
    fn the_next_run_begins_after_the_interval() {
        let dial = SingleFlight::new(Duration::ZERO);
        assert_eq!(poll(pin!(dial.run(ready(())))), Poll::Ready(RunResult::Done));
        assert!(dial.is_due());
    }
}
