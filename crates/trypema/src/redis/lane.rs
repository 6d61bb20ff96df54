//! Travelling together: calls that wait while others are in flight share the next script call.
//!
//! A call that finds a free flight takes it alone and waits for nobody. When all are taken it queues, and the
//! next flight carries the whole queue, in order. No task is spawned: a flight is moved on by whichever of its
//! callers is polled first, so that one that goes away, or is never polled again, harms no other. Each caller has
//! its own deadline; one timer per lane watches over the earliest.

mod flight;
mod seat;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use super::ask::{Answers, Asks};
use super::failure::{RedisFailure, RedisFailureKind};
use super::link::RedisConnection;
use crate::clock::{Clock, Source, SystemClock, Timestamp};
use flight::Flight;
use seat::{Ride, Seat};

/// So many script calls are under way at once: enough that a few callers never wait for each other. When there are
/// many, a flight starts only with its share of them: so they travel together, and the server has less to do.
const MAX_FLIGHTS: usize = 4;

/// Callers that share a script call at most: it keeps the server from other work for less than a few
/// milliseconds.
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
    /// Held while a flight starts, so that they set off in the order of their callers.
    runway: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Flights under way.
    flights: usize,
    /// Callers in them.
    riders: usize,
    /// Callers that wait for one.
    queue: VecDeque<Arc<Seat>>,
    /// Callers that wait for anything, in the order of their deadlines.
    waiting: VecDeque<Arc<Seat>>,
    /// Whether the timer will come.
    is_watched: bool,
}

impl Lane {
    pub(super) fn new(route: Route) -> Arc<Self> {
        Arc::new(Self { route, state: Mutex::default(), runway: Mutex::default() })
    }

    /// Brings `asks` to Redis as one request, and says what it told before `deadline`.
    pub(super) async fn ask(
        self: &Arc<Self>,
        asks: Asks,
        deadline: Timestamp,
    ) -> Result<Answers, RedisFailure> {
        let seat = Seat::new(asks, deadline);
        self.admit(&seat)?;
        Ride { lane: Arc::clone(self), seat }.await
    }

    fn admit(self: &Arc<Self>, seat: &Arc<Seat>) -> Result<(), RedisFailure> {
        let mut state = self.state();
        while state.waiting.front().is_some_and(|first| first.is_over()) {
            state.waiting.pop_front();
        }
        if state.queue.len() >= MAX_WAITING {
            return Err(RedisFailure::new(RedisFailureKind::Unavailable, "too many calls are waiting"));
        }
        state.queue.push_back(Arc::clone(seat));
        state.waiting.push_back(Arc::clone(seat));
        let is_watched = std::mem::replace(&mut state.is_watched, true);
        drop(state);
        if !is_watched {
            SystemClock.wake_at(seat.deadline(), &Waker::from(Arc::clone(self)));
        }
        Ok(())
    }

    /// Starts flights for those who wait, as long as any is free. Runs in a caller's task, whose async runtime
    /// a dial may need.
    fn launch(self: &Arc<Self>) {
        loop {
            let runway = self.runway.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(seats) = self.state().next_seats() else { return };
            let flight = Flight::new(self, seats);
            let reply = flight.advance();
            drop(runway);
            if let Some(reply) = reply {
                flight.land(reply);
            }
        }
    }

    /// A flight of `riders` has ended; those who wait may start the next.
    fn free_flight(&self, riders: usize) {
        let mut state = self.state();
        state.flights -= 1;
        state.riders -= riders;
    }

    /// What wakes the first who waits, to start a flight where none of its callers is left to do so.
    fn first_waker(&self) -> Option<Waker> {
        let state = self.state();
        if !state.is_flight_free() {
            return None;
        }
        state.queue.iter().find_map(|seat| seat.take_waker())
    }

    /// Ends the wait of those whose deadline has come, and comes back for the next.
    fn watch(self: Arc<Self>) {
        let now = SystemClock.now();
        let mut late = Vec::new();
        let mut state = self.state();
        while let Some(first) = state.waiting.front() {
            if !first.is_over() && first.deadline() > now {
                break;
            }
            late.extend(state.waiting.pop_front());
        }
        let next = state.waiting.front().map(|first| first.deadline());
        state.is_watched = next.is_some();
        drop(state);
        late.iter().for_each(|seat| seat.time_out());
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

impl State {
    /// Whether a flight may start for those who wait.
    fn is_flight_free(&self) -> bool {
        self.flights < MAX_FLIGHTS && self.queue.len() * MAX_FLIGHTS >= self.riders
    }

    /// Those who take the next flight, if one is free and anybody waits.
    fn next_seats(&mut self) -> Option<Vec<Arc<Seat>>> {
        if !self.is_flight_free() {
            return None;
        }
        let mut seats: Vec<Arc<Seat>> = Vec::new();
        while let Some(next) = self.queue.front() {
            // Several checks in one request travel alone: all of them or none are spent.
            let is_room = next.is_single() && seats.len() < MAX_TOGETHER;
            if !seats.is_empty() && !is_room {
                break;
            }
            let is_alone = !next.is_single();
            seats.extend(self.queue.pop_front().filter(|next| next.board()));
            if is_alone && !seats.is_empty() {
                break;
            }
        }
        if seats.is_empty() {
            return None;
        }
        self.flights += 1;
        self.riders += seats.len();
        Some(seats)
    }
}

/// The timer's call.
impl Wake for Lane {
    fn wake(self: Arc<Self>) {
        self.watch();
    }
}
