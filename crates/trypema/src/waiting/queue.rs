//! The callers that wait for a key, in the order of their arrival.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::WaitError;

/// The largest number of waiters per key, which bounds the memory. Further callers fail immediately.
pub(crate) const MAX_WAITERS_PER_KEY: usize = 10_000;

/// The queues of waiters, by key.
#[derive(Debug, Default)]
pub(crate) struct WaitQueues(Mutex<HashMap<Box<[u8]>, WaitQueue>>);

/// The waiters of one key. The first one may try to take.
#[derive(Debug, Default)]
struct WaitQueue {
    next_ticket: u64,
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    waker: Option<Waker>,
}

impl WaitQueues {
    /// Whether any caller waits for `key`.
    pub(crate) fn is_waiting(&self, key: &[u8]) -> bool {
        self.lock().contains_key(key)
    }

    /// Adds a waiter for `key`.
    pub(crate) fn join(&self, key: &[u8]) -> Result<Position<'_>, WaitError> {
        let mut queues = self.lock();
        let queue = queues.entry(key.into()).or_default();
        if queue.waiters.len() == MAX_WAITERS_PER_KEY {
            return Err(WaitError::TooManyWaiters);
        }
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        queue.waiters.push_back(Waiter { ticket, waker: None });
        Ok(Position { queues: self, key: key.into(), ticket })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, WaitQueue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A position in the queue of a key; dropping it leaves the queue.
pub(crate) struct Position<'a> {
    queues: &'a WaitQueues,
    key: Box<[u8]>,
    ticket: u64,
}

impl Position<'_> {
    /// Returns `Ready` when this waiter is the first.
    pub(crate) fn poll_turn(&self, context: &Context<'_>) -> Poll<()> {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(&self.key) else { return Poll::Ready(()) };
        match queue.waiters.binary_search_by_key(&self.ticket, |waiter| waiter.ticket) {
            Ok(0) | Err(_) => Poll::Ready(()),
            Ok(index) => {
                let old = queue.waiters[index].waker.replace(context.waker().clone());
                // Drop the old waker after unlocking, because that may run code of the executor.
                drop(queues);
                drop(old);
                Poll::Pending
            }
        }
    }
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(&self.key) else { return };
        let index = queue.waiters.binary_search_by_key(&self.ticket, |waiter| waiter.ticket);
        let left = index.ok().and_then(|index| queue.waiters.remove(index));
        let next = queue.waiters.front_mut().and_then(|waiter| waiter.waker.take());
        if queue.waiters.is_empty() {
            queues.remove(&self.key);
        }
        drop(queues);
        drop(left);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}
