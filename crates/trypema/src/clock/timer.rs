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
    is_running: bool,
}

impl TimerQueue {
    const fn new() -> Self {
        Self { sleepers: BTreeMap::new(), arrivals: 0, is_running: false }
    }
}

/// Wakes `waker` at `at`. If the thread cannot be started, wakes it immediately, so that the sleeper polls
/// instead.
pub(super) fn wake_at(at: Timestamp, waker: Waker) {
    let mut queue = TIMER.queue.lock().unwrap_or_else(PoisonError::into_inner);
    if !queue.is_running {
        match std::thread::Builder::new().name("trypema-timer".into()).spawn(run) {
            Ok(_) => queue.is_running = true,
            Err(_) => {
                drop(queue);
                std::thread::yield_now();
                return waker.wake();
            }
        }
    }
    let order = queue.arrivals;
    queue.arrivals += 1;
    queue.sleepers.insert((at, order), waker);
    drop(queue);
    TIMER.changed.notify_one();
}

/// Removes a waker that [`wake_at`] added, if it is still there.
pub(super) fn forget(at: Timestamp, waker: &Waker) {
    let mut queue = TIMER.queue.lock().unwrap_or_else(PoisonError::into_inner);
    let found = queue.sleepers.range((at, 0)..=(at, u64::MAX)).find(|(_, other)| other.will_wake(waker));
    if let Some(place) = found.map(|(place, _)| *place) {
        queue.sleepers.remove(&place);
    }
}

fn run() {
    let mut queue = TIMER.queue.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let now = SystemClock.now();
        let later = queue.sleepers.split_off(&(now + Duration::from_micros(1), 0));
        let due = std::mem::replace(&mut queue.sleepers, later);
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
            queue.is_running = false;
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
        let start = SystemClock.now();
        let at = start + Duration::from_millis(5);
        let wakers = [0, 1].map(|name| Waker::from(std::sync::Arc::new(Tell(tell.clone(), name))));
        wakers.iter().for_each(|waker| wake_at(at, waker.clone()));
        forget(at, &wakers[0]);
        assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(1));
        assert!(told.try_recv().is_err());
    }

    #[test]
    fn sleepers_wake_in_order_and_not_early() {
        let (tell, told) = mpsc::channel();
        let start = SystemClock.now();
        for (name, ms) in [(2, 20), (1, 10), (0, 0)] {
            let waker = std::sync::Arc::new(Tell(tell.clone(), name)).into();
            wake_at(start + Duration::from_millis(ms), waker);
        }
        for (name, ms) in [(0, 0), (1, 10), (2, 20)] {
            assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(name));
            assert!(SystemClock.now() >= start + Duration::from_millis(ms));
        }
    }
}
