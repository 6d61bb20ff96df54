//! The callers that wait until their reservation fits, in the order of their arrival.
//!
//! A waiter needs the counters of several rules, and shares some of them with other waiters. Each counter has a
//! queue, and nobody may try before those that are ahead of it in the queue of one of its counters:
//!
//! - A waiter whose turn it is to try is in the queues of all of its counters.
//! - A waiter that one counter denied is in the queue of that counter only, and those behind it at its other
//!   counters may try. It keeps its turn there, even if a smaller cost would fit: otherwise it might wait forever.
//! - A waiter that several counters denied is in no queue, until all of them but one have released units.
//!
//! A release gives the turn to the first waiter in the queue of the counter. When a waiter leaves a queue, whether
//! it was admitted, gave up or moved to the queue of another counter, the next one has its turn. So a release makes
//! only those try that nobody ahead of them keeps from it, and a waiter that was denied tries again only when the
//! counter that denied it has changed.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::waiting::{MAX_WAITERS_PER_KEY, WaitError};

/// The order of arrival.
type Ticket = u64;

/// The name of a counter.
pub(super) type CounterKey = Arc<str>;

/// The waiters of an engine.
#[derive(Debug, Default)]
pub(in crate::rules) struct Waitlist(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next_ticket: Ticket,
    /// The number of releases so far. It tells whether one came after the beginning of a try.
    releases: u64,
    /// The counters that waiters need.
    counters: HashMap<CounterKey, Counter>,
    waiters: HashMap<Ticket, Waiter>,
    /// The queues that have lost their first waiter.
    to_advance: Vec<Advance>,
    /// The waiters that have got their turn and are still to be woken.
    to_wake: Vec<Waker>,
}

#[derive(Debug, Default)]
struct Counter {
    /// The number of waiters that need this counter.
    needed_by: usize,
    /// The waiters that nobody who came later may overtake at this counter.
    queue: BTreeSet<Ticket>,
    /// The waiters in no queue that this counter and others denied.
    unqueued: BTreeSet<Ticket>,
    /// The number of the last release of this counter.
    last_release: u64,
}

#[derive(Debug)]
struct Waiter {
    counters: Arc<[CounterKey]>,
    place: Place,
    waker: Option<Waker>,
}

#[derive(Debug, Clone)]
enum Place {
    /// The waiter may try, or is trying, since this number of releases. It came from the queue of a counter, or has
    /// just joined.
    Turn { since: u64, from: Option<CounterKey> },
    /// It is in the queue of this counter, which denied a try that began at this number of releases. `None`: it is
    /// behind others, and has not tried since it joined or since its wait is over.
    Queued { at: CounterKey, denied: Option<u64> },
    /// Several counters denied a try that began at this number of releases.
    Unqueued { denied_by: Arc<[CounterKey]>, denied: u64 },
}

/// A queue that has lost its first waiter.
#[derive(Debug)]
struct Advance {
    key: CounterKey,
    /// Whether that waiter belonged there. Otherwise it was there only as long as it had its turn.
    is_departure: bool,
}

/// A caller that may have to wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    ticket: Ticket,
    /// Whether others wait in the queue of one of its counters.
    pub(super) is_behind_others: bool,
}

impl Waitlist {
    /// Gives a ticket to a caller that needs `counters`.
    pub(super) fn arrive<'k>(&self, mut counters: impl Iterator<Item = &'k str>) -> Arrival {
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let is_behind_others = !state.counters.is_empty()
            && counters.any(|key| state.counters.get(key).is_some_and(|counter| !counter.queue.is_empty()));
        Arrival { ticket, is_behind_others }
    }

    /// Adds a waiter. It has its turn at once if nobody is ahead of it: units may have been released since it was
    /// denied. Fails if too many callers wait for one of the counters.
    pub(super) fn join(
        &self,
        arrival: Arrival,
        counters: Arc<[CounterKey]>,
    ) -> Result<WaitlistPlace<'_>, WaitError> {
        let is_full = |state: &State, key: &CounterKey| {
            state.counters.get(key).is_some_and(|counter| counter.needed_by >= MAX_WAITERS_PER_KEY)
        };
        let ticket = arrival.ticket;
        self.change(|state| {
            if counters.iter().any(|key| is_full(state, key)) {
                return Err(WaitError::TooManyWaiters);
            }
            state.need(&counters);
            let place = Place::Turn { since: state.releases, from: None };
            state.waiters.insert(ticket, Waiter { counters, place, waker: None });
            state.give_turn(ticket);
            Ok(WaitlistPlace { waitlist: self, ticket })
        })
    }

    /// Lets the first waiter for a counter try, because units of it were released.
    pub(in crate::rules::engine) fn release(&self, key: &str) {
        self.change(|state| state.release(key));
    }

    /// Changes the state, then wakes the waiters that have got their turn.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        state.advance_queues();
        let to_wake = std::mem::take(&mut state.to_wake);
        // Unlock first: waking may run code of the executor.
        drop(state);
        to_wake.into_iter().for_each(Waker::wake);
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place on the waitlist; dropping it leaves the list.
#[derive(Debug)]
pub(super) struct WaitlistPlace<'w> {
    waitlist: &'w Waitlist,
    ticket: Ticket,
}

impl WaitlistPlace<'_> {
    /// Returns `Ready` when it is this waiter's turn to try.
    pub(super) fn poll_turn(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.waitlist.lock();
        let Some(waiter) = state.waiters.get_mut(&self.ticket) else { return Poll::Ready(()) };
        if let Place::Turn { .. } = waiter.place {
            return Poll::Ready(());
        }
        let old = waiter.waker.replace(context.waker().clone());
        // Drop the old waker after unlocking, because that may run code of the executor.
        drop(state);
        drop(old);
        Poll::Pending
    }

    /// Gives the turn to this waiter as soon as nobody is ahead of it, because the wait of its denial is over.
    pub(super) fn retry(&self) {
        self.waitlist.change(|state| state.retry(self.ticket));
    }

    /// Whether it is this waiter's turn, so that it tries now. Between its turn and its try, one that is ahead of
    /// it may have got a turn, too.
    pub(super) fn begin_try(&self) -> bool {
        self.waitlist.change(|state| {
            let has_turn = |state: &State| {
                state
                    .waiters
                    .get(&self.ticket)
                    .is_some_and(|waiter| matches!(waiter.place, Place::Turn { .. }))
            };
            if has_turn(state) {
                state.give_turn(self.ticket);
            }
            has_turn(state)
        })
    }

    /// Ends a try that some of the counters denied. Other rules may have been in force than in the try before, so
    /// it says again which counters it needs.
    pub(super) fn deny(&self, counters: Arc<[CounterKey]>, denied_by: Arc<[CounterKey]>) {
        self.waitlist.change(|state| {
            state.replace_counters(self.ticket, counters);
            state.deny(self.ticket, denied_by);
        });
    }

    /// Returns the counter in whose queue this waiter is behind others.
    pub(super) fn queued_at(&self) -> Option<CounterKey> {
        match &self.waitlist.lock().waiters.get(&self.ticket)?.place {
            Place::Queued { at, .. } => Some(Arc::clone(at)),
            Place::Turn { .. } | Place::Unqueued { .. } => None,
        }
    }
}

impl Drop for WaitlistPlace<'_> {
    fn drop(&mut self) {
        let left = self.waitlist.change(|state| state.leave(self.ticket));
        drop(left);
    }
}

impl State {
    /// Counts a waiter at the counters that it needs.
    fn need(&mut self, counters: &[CounterKey]) {
        for key in counters {
            self.counters.entry(Arc::clone(key)).or_default().needed_by += 1;
        }
    }

    /// Removes a waiter that was in `place` from the counters that it needed.
    fn forget(&mut self, ticket: Ticket, counters: &[CounterKey], place: &Place) {
        for key in counters {
            let Some(counter) = self.counters.get_mut(key) else { continue };
            if counter.remove(ticket) {
                self.to_advance.push(place.advance(key));
            }
            counter.needed_by = counter.needed_by.saturating_sub(1);
            if counter.needed_by == 0 {
                self.counters.remove(key);
            }
        }
    }

    /// Removes a waiter, and returns it.
    fn leave(&mut self, ticket: Ticket) -> Option<Waiter> {
        let left = self.waiters.remove(&ticket)?;
        self.forget(ticket, &left.counters, &left.place);
        Some(left)
    }

    fn replace_counters(&mut self, ticket: Ticket, counters: Arc<[CounterKey]>) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else { return };
        if waiter.counters == counters {
            return;
        }
        let (old, place) =
            (std::mem::replace(&mut waiter.counters, Arc::clone(&counters)), waiter.place.clone());
        self.need(&counters);
        self.forget(ticket, &old, &place);
    }

    /// Gives the turn to a waiter, unless one that arrived earlier is in the queue of one of its counters. Then it
    /// is queued up behind that one.
    fn give_turn(&mut self, ticket: Ticket) {
        let Some(waiter) = self.waiters.get(&ticket) else { return };
        let is_behind = |key: &&CounterKey| {
            let first = self.counters.get(*key).and_then(|counter| counter.queue.first());
            first.is_some_and(|first| *first < ticket)
        };
        let place = match waiter.counters.iter().find(is_behind) {
            Some(key) => Place::Queued { at: Arc::clone(key), denied: None },
            None => Place::Turn { since: self.releases, from: waiter.place.queue().cloned() },
        };
        self.put(ticket, place);
    }

    /// Puts a waiter into another place.
    fn put(&mut self, ticket: Ticket, place: Place) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else { return };
        let old = std::mem::replace(&mut waiter.place, place);
        let place = &waiter.place;
        for key in waiter.counters.iter() {
            let Some(counter) = self.counters.get_mut(key) else { continue };
            let is_queued = match place {
                Place::Turn { .. } => true,
                Place::Queued { at, .. } => at == key,
                Place::Unqueued { .. } => false,
            };
            if is_queued {
                counter.unqueued.remove(&ticket);
                counter.queue.insert(ticket);
                continue;
            }
            if counter.remove(ticket) {
                self.to_advance.push(old.advance(key));
            }
            if matches!(place, Place::Unqueued { denied_by, .. } if denied_by.contains(key)) {
                counter.unqueued.insert(ticket);
            }
        }
        if let Place::Turn { .. } = place {
            self.to_wake.extend(waiter.waker.take());
        }
    }

    /// Gives the turn to the new first waiter of each queue whose first one has left it.
    fn advance_queues(&mut self) {
        while let Some(Advance { key, is_departure }) = self.to_advance.pop() {
            self.give_turn_to_first(&key, is_departure);
        }
    }

    /// Gives the turn to the first waiter in the queue of a counter, if it has not tried since the last release, or
    /// if it has not been the first before. If it has the turn already, it notices the release when it is denied.
    fn give_turn_to_first(&mut self, key: &str, is_new: bool) {
        let Some(counter) = self.counters.get(key) else { return };
        let Some(first) = counter.queue.first().copied() else { return };
        let may_fit = |place: &Place| match place {
            Place::Queued { denied, .. } => {
                is_new || denied.is_none_or(|denied| counter.last_release > denied)
            }
            Place::Turn { .. } | Place::Unqueued { .. } => false,
        };
        if self.waiters.get(&first).is_some_and(|waiter| may_fit(&waiter.place)) {
            self.give_turn(first);
        }
    }

    /// Lets a waiter try again, because the wait of its denial is over. If others are ahead of it, it tries when it is
    /// the first.
    fn retry(&mut self, ticket: Ticket) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else { return };
        match &mut waiter.place {
            Place::Turn { .. } => {}
            Place::Unqueued { .. } => self.give_turn(ticket),
            Place::Queued { at, denied } => {
                *denied = None;
                let is_first =
                    self.counters.get(at).is_some_and(|counter| counter.queue.first() == Some(&ticket));
                if is_first {
                    self.give_turn(ticket);
                }
            }
        }
    }

    fn deny(&mut self, ticket: Ticket, denied_by: Arc<[CounterKey]>) {
        if let Some(Place::Turn { since, .. }) = self.waiters.get(&ticket).map(|waiter| &waiter.place) {
            self.wait_for_release(ticket, denied_by, *since);
        }
    }

    /// Lets a waiter wait for a release of the counters that denied a try, which began at this number of releases.
    fn wait_for_release(&mut self, ticket: Ticket, denied_by: Arc<[CounterKey]>, denied: u64) {
        let is_unreleased =
            |key: &&CounterKey| self.counters.get(*key).is_some_and(|counter| counter.last_release <= denied);
        let mut unreleased = denied_by.iter().filter(is_unreleased);
        match (unreleased.next(), unreleased.next()) {
            (None, _) => self.give_turn(ticket),
            (Some(only), None) => {
                let at = Arc::clone(only);
                self.put(ticket, Place::Queued { at, denied: Some(denied) });
            }
            _ => self.put(ticket, Place::Unqueued { denied_by, denied }),
        }
    }

    fn release(&mut self, key: &str) {
        let Some(counter) = self.counters.get_mut(key) else { return };
        self.releases += 1;
        counter.last_release = self.releases;
        for ticket in std::mem::take(&mut counter.unqueued) {
            let place = self.waiters.get(&ticket).map(|waiter| waiter.place.clone());
            if let Some(Place::Unqueued { denied_by, denied }) = place {
                self.wait_for_release(ticket, denied_by, denied);
            }
        }
        self.give_turn_to_first(key, false);
    }
}

impl Counter {
    /// Removes a waiter. Returns whether it was the first one in the queue.
    fn remove(&mut self, ticket: Ticket) -> bool {
        self.unqueued.remove(&ticket);
        let was_first = self.queue.first() == Some(&ticket);
        self.queue.remove(&ticket);
        was_first
    }
}

impl Place {
    /// Returns the counter to whose queue the waiter belongs.
    fn queue(&self) -> Option<&CounterKey> {
        match self {
            Self::Turn { from, .. } => from.as_ref(),
            Self::Queued { at, .. } => Some(at),
            Self::Unqueued { .. } => None,
        }
    }

    /// Returns what to do when a waiter in this place has left the queue of a counter.
    fn advance(&self, key: &CounterKey) -> Advance {
        Advance { key: Arc::clone(key), is_departure: self.queue() == Some(key) }
    }
}
