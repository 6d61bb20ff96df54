//! Travelling together: calls that wait while others are in flight share the next script call.
//!
//! A call that finds a free flight takes it alone and waits for nobody. When all are taken it queues, and the
//! next flight carries the whole queue, in order. No task is spawned: a flight is polled by one of its callers,
//! its *driver*, and handed on when that one goes away, so a caller that is dropped harms no other. Each caller
//! has its own deadline; one timer per lane watches over the earliest.

mod flight;
mod seat;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use super::ask::{Ask, Told};
use super::failure::{RedisFailure, RedisFailureKind};
use super::link::RedisConnection;
use crate::clock::{Clock, Source, SystemClock, Timestamp};
use flight::Flight;
use seat::{Ride, Role, Seat};

/// So many script calls are under way at once: enough that a few callers never wait for each other, few enough
/// that many of them travel together.
const MAX_FLIGHTS: usize = 4;

/// Callers that share a script call at most: it keeps the server from other work for less than a millisecond.
const MAX_TOGETHER: usize = 256;

/// Callers that may wait at most. Beyond it they are turned away at once, unspent.
const MAX_WAITING: usize = 65_536;

/// What lanes are made of.
#[derive(Debug, Clone)]
pub(super) struct Route {
    pub(super) connection: RedisConnection,
    /// The time that scripts go by, if it is not the server's.
    pub(super) clock: Option<Source>,
}

/// Where calls to one server, or one slot of a Cluster, meet.
#[derive(Debug)]
pub(super) struct Lane {
    route: Route,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Flights under way, or about to start.
    flights: usize,
    /// Callers that wait for one.
    queue: VecDeque<Arc<Seat>>,
    /// Callers that wait for anything, in the order of their deadlines.
    waiting: VecDeque<Arc<Seat>>,
    /// Whether the timer will come.
    is_watched: bool,
}

impl Lane {
    pub(super) fn new(route: Route) -> Arc<Self> {
        Arc::new(Self { route, state: Mutex::default() })
    }

    /// Brings `asks` to Redis as one request, and says what it told before `deadline`.
    pub(super) async fn ask(
        self: &Arc<Self>,
        asks: Vec<Ask>,
        deadline: Timestamp,
    ) -> Result<Vec<Told>, RedisFailure> {
        let seat = Seat::new(asks, deadline);
        self.admit(&seat)?;
        Ride { lane: Arc::clone(self), seat }.await
    }

    /// Lets the caller lead a flight of its own, or queues it.
    fn admit(self: &Arc<Self>, seat: &Arc<Seat>) -> Result<(), RedisFailure> {
        let mut state = self.state();
        while state.waiting.front().is_some_and(|first| first.is_over()) {
            state.waiting.pop_front();
        }
        if state.queue.len() >= MAX_WAITING {
            return Err(RedisFailure::new(RedisFailureKind::Unavailable, "too many calls are waiting"));
        }
        if state.flights < MAX_FLIGHTS && state.queue.is_empty() {
            state.flights += 1;
            seat.appoint(Role::Leading);
        } else {
            state.queue.push_back(Arc::clone(seat));
        }
        state.waiting.push_back(Arc::clone(seat));
        let is_watched = std::mem::replace(&mut state.is_watched, true);
        drop(state);
        if !is_watched {
            SystemClock.wake_at(seat.deadline(), &Waker::from(Arc::clone(self)));
        }
        Ok(())
    }

    /// Starts the flight that `leader` was appointed to, with those who wait.
    fn launch(self: &Arc<Self>, leader: &Arc<Seat>) {
        if !leader.board() {
            // Its time is up: it passes the lead on as it leaves.
            return;
        }
        let mut seats = vec![Arc::clone(leader)];
        // Several checks in one request travel alone: all of them or none are spent.
        if leader.is_single() {
            let mut state = self.state();
            while seats.len() < MAX_TOGETHER && state.queue.front().is_some_and(|next| next.is_single()) {
                let next = state.queue.pop_front().filter(|next| next.board());
                seats.extend(next);
            }
        }
        Flight::start(self, seats);
    }

    /// A flight has ended, or will not start: the next in the queue may lead one.
    fn free_flight(&self) {
        let mut state = self.state();
        while let Some(next) = state.queue.pop_front() {
            if let Some(waker) = next.appoint(Role::Leading) {
                drop(state);
                return waker.wake();
            }
        }
        state.flights -= 1;
    }

    /// Ends the wait of those whose deadline has come, and comes back for the next.
    fn watch(self: Arc<Self>) {
        let now = SystemClock.now();
        let mut wakers = Vec::new();
        let mut state = self.state();
        while let Some(first) = state.waiting.front() {
            if first.is_over() || first.deadline() <= now {
                wakers.extend(first.time_out());
                state.waiting.pop_front();
            } else {
                break;
            }
        }
        let next = state.waiting.front().map(|first| first.deadline());
        state.is_watched = next.is_some();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        if let Some(next) = next {
            SystemClock.wake_at(next, &Waker::from(self));
        }
    }

    /// Whether nobody is using it.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.flights == 0 && state.queue.is_empty()
    }

    /// The time for a script to go by, if it is not the server's.
    fn now(&self) -> Option<Timestamp> {
        self.route.clock.as_ref().map(Source::now)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The timer's call.
impl Wake for Lane {
    fn wake(self: Arc<Self>) {
        self.watch();
    }
}
