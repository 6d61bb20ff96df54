//! Counts the settlements that run in the background, so that a process can wait for them before it ends.
#![cfg_attr(not(feature = "_redis"), allow(dead_code, reason = "counters in this process never wait"))]

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The settlements that run in the background. Clones share one count.
#[derive(Debug, Clone, Default)]
pub(in crate::rules) struct RunningSettlements(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    running: usize,
    next_ticket: u64,
    /// The callers that wait until none is running. They leave the list at that moment.
    waiters: Vec<SettlementWaiter>,
}

#[derive(Debug)]
struct SettlementWaiter {
    ticket: u64,
    waker: Waker,
}

impl RunningSettlements {
    /// Counts one more settlement, until the returned value is dropped.
    pub(in crate::rules) fn begin(&self) -> RunningSettlement {
        self.lock().running += 1;
        RunningSettlement(self.clone())
    }

    /// Waits until none is running. That there was such a moment is enough: others may have begun since.
    pub(in crate::rules) fn none(&self) -> NoneRunning<'_> {
        NoneRunning { settlements: self, ticket: None }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A settlement that is running. Dropping it is its end, also if its task panics or its runtime shuts down.
#[derive(Debug)]
pub(in crate::rules) struct RunningSettlement(RunningSettlements);

impl Drop for RunningSettlement {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.running -= 1;
        let done = if state.running == 0 { std::mem::take(&mut state.waiters) } else { Vec::new() };
        // Wake after unlocking, because that may run code of the executor.
        drop(state);
        done.into_iter().for_each(|waiter| waiter.waker.wake());
    }
}

/// A future that is ready when no settlement is running.
#[derive(Debug)]
pub(in crate::rules) struct NoneRunning<'s> {
    settlements: &'s RunningSettlements,
    /// The ticket in the list of waiters; `None` before the first poll.
    ticket: Option<u64>,
}

impl Future for NoneRunning<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let waker = context.waker().clone();
        let mut state = self.settlements.lock();
        let Some(ticket) = self.ticket else {
            if state.running == 0 {
                return Poll::Ready(());
            }
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            state.waiters.push(SettlementWaiter { ticket, waker });
            drop(state);
            self.ticket = Some(ticket);
            return Poll::Pending;
        };
        let Some(waiter) = state.waiters.iter_mut().find(|waiter| waiter.ticket == ticket) else {
            return Poll::Ready(());
        };
        let old = std::mem::replace(&mut waiter.waker, waker);
        // Drop the old waker after unlocking, because that may run code of the executor.
        drop(state);
        drop(old);
        Poll::Pending
    }
}

impl Drop for NoneRunning<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut state = self.settlements.lock();
        let index = state.waiters.iter().position(|waiter| waiter.ticket == ticket);
        let left = index.map(|index| state.waiters.swap_remove(index));
        drop(state);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn poll(future: Pin<&mut NoneRunning<'_>>, wakes: &Arc<Wakes>) -> Poll<()> {
        future.poll(&mut Context::from_waker(&Waker::from(wakes.clone())))
    }

    #[test]
    fn all_waiters_are_woken_when_the_last_settlement_ends() {
        let (settlements, wakes) = (RunningSettlements::default(), Arc::new(Wakes::default()));
        assert_eq!(poll(pin!(settlements.none()), &wakes), Poll::Ready(()), "none has begun");
        let running = [settlements.begin(), settlements.begin()];
        let mut waiting = [pin!(settlements.none()), pin!(settlements.none())];
        for waiting in &mut waiting {
            assert_eq!(poll(waiting.as_mut(), &wakes), Poll::Pending);
        }
        let [first, last] = running;
        drop(first);
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
        assert_eq!(poll(waiting[0].as_mut(), &wakes), Poll::Pending);
        drop(last);
        assert_eq!(wakes.0.load(Ordering::SeqCst), 2);
        // The next one began after the moment that they have waited for.
        let _next = settlements.begin();
        for waiting in &mut waiting {
            assert_eq!(poll(waiting.as_mut(), &wakes), Poll::Ready(()));
        }
    }

    #[test]
    fn the_last_waker_is_woken_and_dropped_waiters_leave() {
        let (settlements, old, new) =
            (RunningSettlements::default(), Arc::new(Wakes::default()), Arc::new(Wakes::default()));
        let running = settlements.begin();
        let mut kept = pin!(settlements.none());
        {
            let mut dropped = pin!(settlements.none());
            assert_eq!(poll(dropped.as_mut(), &old), Poll::Pending);
            assert_eq!(poll(kept.as_mut(), &old), Poll::Pending);
        }
        assert_eq!(settlements.lock().waiters.len(), 1);
        assert_eq!(poll(kept.as_mut(), &new), Poll::Pending);
        assert_eq!(Arc::strong_count(&old), 1, "no waker is left");
        drop(running);
        assert_eq!([&old, &new].map(|wakes| wakes.0.load(Ordering::SeqCst)), [0, 1]);
        assert_eq!(poll(kept.as_mut(), &new), Poll::Ready(()));
    }
}
