//! One script call and those who wait for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};

use super::Lane;
use super::seat::Seat;
use crate::redis::ask::{Answers, Cargo, Told};
use crate::redis::failure::{RedisFailure, RedisFailureKind};
use crate::redis::link::ScriptCall;

type Reply = Result<::redis::Value, RedisFailure>;
type Trip = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// A call that asks again and again to be polled wants the task to yield to its runtime, which it can only do
/// by returning.
const MAX_POLLS: usize = 4;

/// A script call under way.
pub(super) struct Flight {
    lane: Arc<Lane>,
    seats: Vec<Arc<Seat>>,
    /// Callers that have not gone away.
    riders: AtomicUsize,
    call: Arc<ScriptCall>,
    /// The call's way there and back. Whoever takes it out frees the flight.
    under_way: Mutex<Option<Trip>>,
    /// Whether it can be moved on.
    is_woken: AtomicBool,
}

impl Flight {
    /// The call for `seats`, in their order; it sets off when it is first advanced.
    pub(super) fn new(lane: &Arc<Lane>, seats: Vec<Arc<Seat>>) -> Arc<Self> {
        let call = Arc::new(cargo(&seats).call(lane.now()));
        let (connection, sent) = (lane.route.connection.clone(), Arc::clone(&call));
        let trip: Trip = Box::pin(async move { connection.run(&sent).await });
        Arc::new(Self {
            lane: Arc::clone(lane),
            riders: AtomicUsize::new(seats.len()),
            seats,
            call,
            under_way: Mutex::new(Some(trip)),
            is_woken: AtomicBool::new(true),
        })
    }

    /// Has its callers wait for it, once it has set off.
    pub(super) fn seat_all(self: &Arc<Self>) {
        for seat in &self.seats {
            if !seat.ride(self) {
                self.leave();
            }
        }
    }

    pub(super) fn seats(&self) -> &[Arc<Seat>] {
        &self.seats
    }

    /// Whether it can be moved on.
    pub(super) fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::Acquire)
    }

    /// Moves the call on as long as it can be, unless somebody else is doing so; the reply, when it is there, is the
    /// caller's to [`land`](Self::land).
    pub(super) fn advance(self: &Arc<Self>) -> Option<Reply> {
        // Who finds it locked leaves it to the other, who looks again after unlocking. Reading by writing, the last
        // word is never missed.
        for _ in 0..MAX_POLLS {
            if !self.is_woken.fetch_or(false, Ordering::AcqRel) {
                return None;
            }
            let mut under_way = match self.under_way.try_lock() {
                Ok(under_way) => under_way,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            self.is_woken.swap(false, Ordering::AcqRel);
            let waker = Waker::from(Arc::clone(self));
            let trip = under_way.as_mut()?;
            if let Poll::Ready(reply) = trip.as_mut().poll(&mut Context::from_waker(&waker)) {
                *under_way = None;
                return Some(reply);
            }
        }
        if self.is_woken() {
            // The runtime wants its turn first: who waits is polled again after that.
            self.wake_all();
            self.lane.wake_queue();
        }
        None
    }

    /// Tells everyone their part of the reply.
    pub(super) fn land(&self, reply: Reply) {
        let mut told = reply.and_then(|reply| self.read(&reply)).map(Vec::into_iter);
        let mut answer_of = |seat: &Seat| match &mut told {
            Ok(told) if seat.is_single() => told.next().unwrap_or_else(|| Err(bad_reply())).map(Answers::One),
            Ok(told) => Ok(Answers::Many(told.take(seat.asks().len()).collect())),
            Err(failure) => Err(failure.clone()),
        };
        self.lane.free_flight(self);
        // Most have been woken by the reply already, and need no second waking.
        let wakers: Vec<Waker> = self.seats.iter().filter_map(|seat| seat.land(answer_of(seat))).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Makes sure that nothing is sent; `false` if it may have been, or if it is not for one caller alone.
    pub(super) fn call_off(&self) -> bool {
        self.seats.len() == 1 && self.call.departure.call_off()
    }

    /// A caller goes away; with the last one the call is given up.
    pub(super) fn leave(&self) {
        if self.riders.fetch_sub(1, Ordering::AcqRel) > 1 {
            if self.is_woken() {
                // The one that was woken to move it on may be the one that left.
                self.wake_all();
            }
            return;
        }
        let trip = self.under_way.lock().unwrap_or_else(PoisonError::into_inner).take();
        if trip.is_some() {
            self.lane.free_flight(self);
            self.lane.wake_queue();
        }
    }

    fn wake_all(&self) {
        for seat in &self.seats {
            if let Some(waker) = seat.take_waker() {
                waker.wake();
            }
        }
    }

    fn read(&self, reply: &::redis::Value) -> Result<Vec<Result<Told, RedisFailure>>, RedisFailure> {
        let told = match reply {
            ::redis::Value::BulkString(bytes) => cargo(&self.seats).read(bytes),
            _ => None,
        };
        told.ok_or_else(bad_reply)
    }
}

/// The call can move on: whoever is polled first sees to that.
impl Wake for Flight {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.swap(true, Ordering::AcqRel);
        self.wake_all();
        // Its own callers may be kept from being polled; those who wait for a flight want it to land, too.
        self.lane.wake_queue();
    }
}

fn bad_reply() -> RedisFailure {
    RedisFailure::new(RedisFailureKind::BadReply, "not what the script answers")
}

fn cargo(seats: &[Arc<Seat>]) -> Cargo<'_> {
    let mut cargo = Cargo::default();
    seats.iter().for_each(|seat| cargo.add(seat.asks()));
    cargo
}

impl std::fmt::Debug for Flight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flight").field("seats", &self.seats.len()).finish_non_exhaustive()
    }
}
