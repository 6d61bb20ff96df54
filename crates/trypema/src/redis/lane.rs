//! Travelling together: calls that wait while others are in flight share the next script call.
//!
//! A call that finds nobody under way waits for nobody. When there are flights under way it queues, until it is
//! worth one more or one of them lands, and the next flight carries the whole queue, in order. No task is spawned: a
//! flight is moved on by whichever caller of the lane is polled first, so that one that goes away, or is never
//! polled again, harms no other. Each caller has its own deadline; one timer per lane watches over the earliest.

mod flight;
mod seat;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
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

/// Checks of one script call at most: it keeps the server from other work for less than a few
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

/// What a caller wants besides an answer.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    /// When it gives up.
    pub(super) deadline: Timestamp,
    /// Set when it goes away and nothing was, or will be, sent for it.
    pub(super) unsent: Option<Arc<AtomicBool>>,
}

impl Terms {
    /// Gives up at `deadline`.
    pub(super) fn until(deadline: Timestamp) -> Self {
        Self { deadline, unsent: None }
    }
}

/// Where calls to one server, or one slot of a Cluster, meet.
#[derive(Debug)]
pub(super) struct Lane {
    route: Route,
    state: Mutex<State>,
    /// Held while a flight starts, so that they set off in the order of their callers.
    runway: Mutex<()>,
    /// Whether somebody wants a flight to start.
    is_wanted: AtomicBool,
    /// Whether there may be something to do for those who wait.
    is_work_left: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Flights under way.
    flights: Vec<Arc<Flight>>,
    /// The same, and those about to start.
    starting_or_flying: usize,
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
        Arc::new(Self {
            route,
            state: Mutex::default(),
            runway: Mutex::default(),
            is_wanted: AtomicBool::new(false),
            is_work_left: AtomicBool::new(false),
        })
    }

    /// Brings `asks` to Redis as one request, and says what it told before the deadline.
    pub(super) async fn ask(self: &Arc<Self>, asks: Asks, terms: Terms) -> Result<Answers, RedisFailure> {
        let seat = Seat::new(asks, terms);
        let is_worth_polling = self.admit(&seat)?;
        Ride { lane: Arc::clone(self), seat, is_worth_polling }.await
    }

    /// Queues a caller; whether a flight is free, so that it can start at once.
    fn admit(self: &Arc<Self>, seat: &Arc<Seat>) -> Result<bool, RedisFailure> {
        let mut state = self.state();
        while state.waiting.front().is_some_and(|first| first.is_over()) {
            state.waiting.pop_front();
        }
        if state.queue.len() >= MAX_WAITING {
            return Err(RedisFailure::new(RedisFailureKind::Unavailable, "too many calls are waiting"));
        }
        state.queue.push_back(Arc::clone(seat));
        let is_first = state.watch(seat);
        let is_watched = std::mem::replace(&mut state.is_watched, true) && !is_first;
        let is_flight_free = state.is_flight_free();
        drop(state);
        if !is_watched {
            SystemClock.wake_at(seat.deadline(), &Waker::from(Arc::clone(self)));
        }
        Ok(is_flight_free)
    }

    /// Starts flights for those who wait, as long as any is free. Runs in a caller's task, whose async runtime
    /// a dial may need.
    fn launch(self: &Arc<Self>) {
        self.is_wanted.swap(true, Ordering::AcqRel);
        // Whoever has the runway looks again after leaving it. Reading by writing, the last word is never missed.
        while self.is_wanted.fetch_or(false, Ordering::AcqRel) {
            let runway = match self.runway.try_lock() {
                Ok(runway) => runway,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            self.is_wanted.swap(false, Ordering::AcqRel);
            let Some(seats) = self.state().next_seats() else { continue };
            let flight = Flight::new(self, seats);
            // Nobody else knows of it before it has set off.
            let reply = flight.advance();
            self.state().flights.push(Arc::clone(&flight));
            flight.seat_all();
            self.is_wanted.swap(true, Ordering::AcqRel);
            drop(runway);
            if let Some(reply) = reply.or_else(|| flight.advance()) {
                flight.land(reply);
            }
        }
    }

    /// Moves on the flights that can, and starts new ones: what a caller does for all when it is polled.
    fn work(self: &Arc<Self>) {
        self.is_work_left.swap(false, Ordering::AcqRel);
        let ready: Vec<Arc<Flight>> = {
            let state = self.state();
            state.flights.iter().filter(|flight| flight.is_woken()).cloned().collect()
        };
        for flight in ready {
            if let Some(reply) = flight.advance() {
                flight.land(reply);
            }
        }
        self.launch();
    }

    fn is_work_left(&self) -> bool {
        self.is_work_left.fetch_or(false, Ordering::AcqRel)
    }

    /// A flight has ended; those who wait may start the next.
    fn free_flight(&self, flight: &Flight) {
        let mut state = self.state();
        state.flights.retain(|other| !std::ptr::eq(&**other, flight));
        state.starting_or_flying -= 1;
        state.riders -= flight.seats().len();
    }

    /// Wakes the first and the last who wait for a flight, to do what is to be done: one of them may be kept from
    /// being polled. One that comes just now sees to it unasked.
    fn wake_queue(&self) {
        self.is_work_left.swap(true, Ordering::AcqRel);
        let state = self.state();
        let first = state.queue.iter().find_map(|seat| seat.take_waker());
        let last = state.queue.iter().rev().find_map(|seat| seat.take_waker());
        drop(state);
        first.into_iter().chain(last).for_each(Waker::wake);
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
        // One of them may have been woken to do something for others.
        self.wake_queue();
        if let Some(next) = next {
            SystemClock.wake_at(next, &Waker::from(self));
        }
    }

    /// Whether nobody is using it.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.starting_or_flying == 0 && state.queue.is_empty()
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
    /// Adds a caller to those who wait; whether its deadline comes before all others. Nearly always it comes last.
    fn watch(&mut self, seat: &Arc<Seat>) -> bool {
        let before = self.waiting.iter().rev().take_while(|other| other.deadline() > seat.deadline()).count();
        let position = self.waiting.len() - before;
        self.waiting.insert(position, Arc::clone(seat));
        position == 0 && before > 0
    }

    /// Whether a flight may start for those who wait.
    fn is_flight_free(&self) -> bool {
        !self.queue.is_empty()
            && self.starting_or_flying < MAX_FLIGHTS
            && self.queue.len() * MAX_FLIGHTS >= self.riders
    }

    /// Those who take the next flight, if one is free and anybody waits.
    fn next_seats(&mut self) -> Option<Vec<Arc<Seat>>> {
        if !self.is_flight_free() {
            return None;
        }
        let mut seats: Vec<Arc<Seat>> = Vec::new();
        let mut checks = 0;
        while let Some(next) = self.queue.front() {
            if !seats.is_empty() && checks + next.asks().len() > MAX_TOGETHER {
                break;
            }
            if let Some(next) = self.queue.pop_front().filter(|next| next.board()) {
                checks += next.asks().len();
                seats.push(next);
            }
        }
        if seats.is_empty() {
            return None;
        }
        self.starting_or_flying += 1;
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
