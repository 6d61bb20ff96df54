//! One script call and those who wait for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::Lane;
use super::seat::{Role, Seat};
use crate::redis::ask::{Cargo, Run, Told, Verb};
use crate::redis::failure::{RedisFailure, RedisFailureKind};
use crate::redis::link::ScriptCall;

type Reply = Result<::redis::Value, RedisFailure>;
type Trip = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// A script call under way.
pub(super) struct Flight {
    lane: Arc<Lane>,
    seats: Vec<Arc<Seat>>,
    call: Arc<ScriptCall>,
    /// The call's way there and back, as long as it is under way.
    under_way: Mutex<Option<Trip>>,
}

impl Flight {
    /// Prepares the call for `seats`, in their order; the first of them drives.
    pub(super) fn start(lane: &Arc<Lane>, seats: Vec<Arc<Seat>>) {
        let call = Arc::new(cargo(&seats).call(lane.now()));
        let (connection, sent) = (lane.route.connection.clone(), Arc::clone(&call));
        let trip: Trip = Box::pin(async move { connection.run(&sent).await });
        let flight = Self { lane: Arc::clone(lane), seats, call, under_way: Mutex::new(Some(trip)) };
        let flight = Arc::new(flight);
        if let Some(leader) = flight.seats.first() {
            leader.drive(&flight);
        }
    }

    /// Polls the call; ready when all have been answered.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(trip) = under_way.as_mut() else { return Poll::Ready(()) };
        let Poll::Ready(reply) = trip.as_mut().poll(context) else { return Poll::Pending };
        *under_way = None;
        drop(under_way);
        self.land(reply);
        Poll::Ready(())
    }

    /// Makes sure that nothing is sent; `false` if it may have been, or if it is not for one caller alone.
    pub(super) fn call_off(&self) -> bool {
        self.seats.len() == 1 && self.call.departure.call_off()
    }

    /// The driver leaves: another rider goes on, or, if there is none, the call is given up.
    pub(super) fn hand_over(self: &Arc<Self>) {
        for rider in &self.seats {
            if let Some(waker) = rider.appoint(Role::Driving(Arc::clone(self))) {
                return waker.wake();
            }
        }
        *self.under_way.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.lane.free_flight();
    }

    /// Tells everyone their part of the reply, and lets the next flight start.
    fn land(&self, reply: Reply) {
        let wakers: Vec<Waker> = match reply.and_then(|reply| self.read(&reply)) {
            Ok(told) => {
                let mut told = told.into_iter();
                let answer_of = |seat: &Arc<Seat>| {
                    let parts: Vec<_> = told.by_ref().take(seat.asks().len()).collect();
                    seat.land(parts.into_iter().collect())
                };
                self.seats.iter().filter_map(answer_of).collect()
            }
            Err(failure) => self.seats.iter().filter_map(|seat| seat.land(Err(failure.clone()))).collect(),
        };
        self.lane.free_flight();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn read(&self, reply: &::redis::Value) -> Result<Vec<Result<Told, RedisFailure>>, RedisFailure> {
        let told = match reply {
            ::redis::Value::BulkString(bytes) => cargo(&self.seats).read(bytes),
            _ => None,
        };
        let bad_reply = || RedisFailure::new(RedisFailureKind::BadReply, "not what the script answers");
        told.ok_or_else(bad_reply)
    }
}

/// Callers that take the same from the same key, one after the other, are one run.
fn cargo(seats: &[Arc<Seat>]) -> Cargo<'_> {
    if let [seat] = seats
        && !seat.is_single()
    {
        return Cargo::Together(seat.asks());
    }
    let mut runs: Vec<Run<'_>> = Vec::new();
    for ask in seats.iter().flat_map(|seat| seat.asks()) {
        match runs.last_mut() {
            Some(run) if ask.verb == Verb::Take && run.ask == ask => run.times += 1,
            _ => runs.push(Run { ask, times: 1 }),
        }
    }
    Cargo::Runs(runs)
}

impl std::fmt::Debug for Flight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flight").field("seats", &self.seats.len()).finish_non_exhaustive()
    }
}
