//! A clock for tests, which the test moves.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::{Clock, Timestamp};

/// A clock that stands still until a test moves it, forward or back.
///
/// It starts at 2020-09-13 12:26:40 UTC (1,600,000,000 s), where windows of 1, 10 and 100 seconds start.
///
/// ```
/// use std::time::Duration;
/// use trypema::clock::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::default();
/// let start = clock.now();
/// clock.advance(Duration::from_millis(5));
/// assert_eq!(clock.now().as_micros() - start.as_micros(), 5_000);
/// clock.set(Timestamp::from_micros(0));
/// assert_eq!(clock.now().as_micros(), 0);
/// ```
#[derive(Debug)]
pub struct ManualClock(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    now: Timestamp,
    sleepers: Vec<(Timestamp, Waker)>,
}

impl ManualClock {
    /// Returns a clock that shows `now`.
    pub const fn starting_at(now: Timestamp) -> Self {
        Self(Mutex::new(Inner { now, sleepers: Vec::new() }))
    }

    /// Moves forward by `by`, and wakes the wakers that are due.
    pub fn advance(&self, by: Duration) {
        let now = self.now();
        self.set(now + by);
    }

    /// Moves to `to`, which may be in the past, and wakes the wakers that are due.
    pub fn set(&self, to: Timestamp) {
        let mut inner = self.lock();
        inner.now = to;
        let (due, waiting) = std::mem::take(&mut inner.sleepers).into_iter().partition(|(at, _)| *at <= to);
        inner.sleepers = waiting;
        drop(inner);
        let due: Vec<(Timestamp, Waker)> = due;
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Returns the time of the next scheduled wake-up.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.lock().sleepers.iter().map(|(at, _)| *at).min()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::starting_at(Timestamp::from_micros(1_600_000_000_000_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.lock().now
    }

    fn wake_at(&self, at: Timestamp, waker: &Waker) {
        let mut inner = self.lock();
        if at <= inner.now {
            drop(inner);
            waker.wake_by_ref();
        } else {
            inner.sleepers.push((at, waker.clone()));
        }
    }

    fn forget(&self, at: Timestamp, waker: &Waker) {
        let mut inner = self.lock();
        let found =
            inner.sleepers.iter().position(|(other, sleeper)| *other == at && sleeper.will_wake(waker));
        if let Some(place) = found {
            inner.sleepers.swap_remove(place);
        }
    }
}
