//! A thread that wakes sleeping tasks, so that waiting needs no async runtime.
//!
//! It starts with the first sleeper, and ends after some time without any.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::{Clock, SystemClock, Timestamp};

/// The time after which the thread ends if there is no sleeper.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

static TIMER: Timer = Timer { queue: Mutex::new(TimerQueue::new()), changed: Condvar::new() };

struct Timer {
    queue: Mutex<TimerQueue>,
    changed: Condvar,
}

struct TimerQueue {
    /// The wakers, ordered by time, then by arrival.
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
    arrivals: u64,
    /// The process whose thread wakes the sleepers. A fork has no threads.
    running_in: Option<u32>,
}

impl TimerQueue {
    const fn new() -> Self {
        Self { sleepers: BTreeMap::new(), arrivals: 0, running_in: None }
    }

    fn add(&mut self, at: Timestamp, waker: Waker) {
        self.sleepers.insert((at, self.arrivals), waker);
        self.arrivals += 1;
    }

    fn forget(&mut self, at: Timestamp, waker: &Waker) {
        let found = self.sleepers.range((at, 0)..=(at, u64::MAX)).find(|(_, other)| other.will_wake(waker));
        if let Some(place) = found.map(|(place, _)| *place) {
            self.sleepers.remove(&place);
        }
    }

    /// Removes the sleepers whose time has come at `now`.
    fn take_due(&mut self, now: Timestamp) -> BTreeMap<(Timestamp, u64), Waker> {
        let later = self.sleepers.split_off(&(now + Duration::from_micros(1), 0));
        std::mem::replace(&mut self.sleepers, later)
    }
}

/// Wakes `waker` at `at`. If the thread cannot be started, wakes it immediately, so that the sleeper polls
/// instead.
pub(super) fn wake_at(at: Timestamp, waker: Waker) {
    let mut queue = TIMER.queue.lock().unwrap_or_else(PoisonError::into_inner);
    let process = Some(std::process::id());
    if queue.running_in != process {
        match std::thread::Builder::new().name("trypema-timer".into()).spawn(run) {
            Ok(_) => queue.running_in = process,
            Err(_) => {
                drop(queue);
                std::thread::yield_now();
                return waker.wake();
            }
        }
    }
    queue.add(at, waker);
    drop(queue);
    TIMER.changed.notify_one();
}

/// Removes a waker that [`wake_at`] added, if it is still there.
pub(super) fn forget(at: Timestamp, waker: &Waker) {
    TIMER.queue.lock().unwrap_or_else(PoisonError::into_inner).forget(at, waker);
}

fn run() {
    let mut queue = TIMER.queue.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let now = SystemClock.now();
        let due = queue.take_due(now);
        if !due.is_empty() {
            drop(queue);
            for waker in due.into_values() {
                // A waker that panics must not prevent the others from being woken.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
            }
            queue = TIMER.queue.lock().unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let pause = match queue.sleepers.keys().next() {
            Some((at, _)) => Duration::from_micros(at.as_micros() - now.as_micros()),
            None => IDLE_TIMEOUT,
        };
        let (woken, wait) = TIMER.changed.wait_timeout(queue, pause).unwrap_or_else(PoisonError::into_inner);
        queue = woken;
        if wait.timed_out() && queue.sleepers.is_empty() && pause == IDLE_TIMEOUT {
            queue.running_in = None;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::task::Wake;

    struct Tell(mpsc::Sender<u8>, u8);

    impl Wake for Tell {
        fn wake(self: std::sync::Arc<Self>) {
            let _ = self.0.send(self.1);
        }
    }

    #[test]
    fn who_is_forgotten_is_not_woken() {
        let (tell, told) = mpsc::channel();
        let mut queue = TimerQueue::new();
        let at = SystemClock.now();
        let wakers = [0, 1].map(|name| Waker::from(std::sync::Arc::new(Tell(tell.clone(), name))));
        wakers.iter().for_each(|waker| queue.add(at, waker.clone()));
        queue.forget(at, &wakers[0]);
        queue.take_due(at).into_values().for_each(Waker::wake);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [1]);
        assert!(queue.sleepers.is_empty());
    }

    #[test]
    fn sleepers_are_taken_in_order_and_not_early() {
        let mut queue = TimerQueue::new();
        let (start, waker) = (SystemClock.now(), Waker::noop());
        for ms in [20, 10, 0, 10] {
            queue.add(start + Duration::from_millis(ms), waker.clone());
        }
        let just_before = start + Duration::from_micros(19_999);
        let order: Vec<_> = queue.take_due(just_before).into_keys().map(|(at, _)| at).collect();
        assert_eq!(order, [0, 10, 10].map(|ms| start + Duration::from_millis(ms)));
        assert_eq!(queue.sleepers.len(), 1);
    }

    #[test]
    fn the_thread_wakes_a_sleeper_and_not_early() {
        for ms in [0, 10, 20] {
            let (tell, told) = mpsc::channel();
            let at = SystemClock.now() + Duration::from_millis(ms);
            wake_at(at, std::sync::Arc::new(Tell(tell, 1)).into());
            assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(1));
            assert!(SystemClock.now() >= at);
        }
    }
}
