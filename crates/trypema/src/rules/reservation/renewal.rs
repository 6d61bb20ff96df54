//! Reservations that renew themselves for as long as they are needed.
//!
//! The clock wakes a renewal when it is due, on the thread of its timer. Counters in this process are renewed
//! right there, so no async runtime is needed. Counters in Redis are renewed by a task that ends with the
//! reply. Nothing runs in between, and settling the reservation cancels the timer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::{FinalCosts, OnDrop, Outstanding, Reservation};
use crate::clock::{ClockSource, Timestamp};
use crate::rules::engine::{EndedReservation, Engine, Spawner};

/// The renewals in the time after which a reservation would expire: one may fail, and the next one is still
/// in time.
const RENEWALS_PER_TTL: u32 = 3;

/// The tries in the time between two renewals, while the store fails.
const TRIES_PER_RENEWAL: u32 = 4;

/// The shortest pause between two renewals, so that a `hold` of microseconds does not keep the timer busy.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// A reservation that does not expire before it is settled or dropped. Dropping it settles it at its
/// estimate.
#[derive(Debug)]
pub(crate) struct RenewingReservation {
    renewal: Arc<Renewal>,
}

#[derive(Debug)]
struct Renewal {
    engine: Arc<Engine>,
    spawner: Spawner,
    ttl: Duration,
    state: Mutex<RenewalState>,
}

#[derive(Debug)]
struct RenewalState {
    /// `None` once the reservation is settled.
    outstanding: Option<Outstanding>,
    /// The latest time at which it may expire.
    expires_at: Timestamp,
    /// The time of the next renewal, with the waker that the clock holds. `None` during a renewal, and if
    /// there is nothing to renew.
    scheduled: Option<(Timestamp, Waker)>,
    /// Whether the clock is being asked for the next wake-up. It may wake the renewal from within that call.
    is_scheduling: bool,
    /// Whether the clock did so.
    is_woken: bool,
    /// The time between two renewals.
    pause: Duration,
}

impl Reservation {
    /// Renews the reservation for `ttl` in good time, again and again, until it is settled or dropped.
    pub(crate) fn renewing(mut self, ttl: Duration) -> RenewingReservation {
        debug_assert!(self.on_drop == OnDrop::Settle, "the only effect of dropping a renewing reservation");
        let is_kept = |outstanding: &Outstanding| !outstanding.counters.is_empty();
        let state = RenewalState {
            outstanding: self.outstanding.take().filter(is_kept),
            expires_at: self.expires_at,
            scheduled: None,
            is_scheduling: false,
            is_woken: false,
            pause: self.expires_in / RENEWALS_PER_TTL,
        };
        let renewal = Arc::new(Renewal {
            engine: Arc::clone(&self.engine),
            spawner: self.spawner.clone(),
            ttl,
            state: Mutex::new(state),
        });
        if renewal.schedule(self.expires_in / RENEWALS_PER_TTL) == Scheduled::Due {
            renewal.start();
        }
        RenewingReservation { renewal }
    }
}

impl RenewingReservation {
    /// Settles the reservation: at once if the counters are in this process, otherwise in a task, which tries
    /// again while the store fails. Settling again changes nothing.
    pub(crate) fn settle(&self, costs: FinalCosts) {
        let Renewal { engine, spawner, .. } = &*self.renewal;
        let (outstanding, expires_at, scheduled) = {
            let mut state = self.renewal.lock();
            (state.outstanding.take(), state.expires_at, state.scheduled.take())
        };
        if let Some((at, waker)) = scheduled {
            self.renewal.clock().forget(at, &waker);
        }
        if let Some(outstanding) = outstanding {
            let ended = EndedReservation { outstanding, costs, expires_at };
            engine.settle_in_background(ended, spawner);
        }
    }
}

impl Drop for RenewingReservation {
    fn drop(&mut self) {
        self.settle(FinalCosts::Estimate);
    }
}

/// The result of asking the clock for a wake-up.
#[derive(Debug, PartialEq, Eq)]
enum Scheduled {
    /// The clock will wake the renewal, or there is nothing to renew.
    Later,
    /// The time has come meanwhile.
    Due,
}

impl Renewal {
    fn lock(&self) -> MutexGuard<'_, RenewalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clock(&self) -> &ClockSource {
        self.engine.clock()
    }

    /// Asks the clock to wake this renewal after `pause`.
    fn schedule(self: &Arc<Self>, pause: Duration) -> Scheduled {
        let now = self.clock().now();
        let at = now + pause.max(SHORTEST_PAUSE);
        let waker = Waker::from(Arc::clone(self));
        {
            let mut state = self.lock();
            // At the largest timestamp, a clock cannot advance: the reservation does not expire either.
            if state.outstanding.is_none() || at == now {
                return Scheduled::Later;
            }
            state.scheduled = Some((at, waker.clone()));
            (state.is_scheduling, state.is_woken) = (true, false);
        }
        self.clock().wake_at(at, &waker);
        let mut state = self.lock();
        state.is_scheduling = false;
        if state.outstanding.is_none() {
            // It was settled before the clock knew the waker.
            drop(state);
            self.clock().forget(at, &waker);
            return Scheduled::Later;
        }
        // A clock that wakes too early from within the call cannot keep time now: without a thread for its
        // timer, for example. To ask it again and again would keep this thread busy.
        match state.is_woken && self.clock().now() >= at {
            true => Scheduled::Due,
            false => Scheduled::Later,
        }
    }

    /// Renews the reservation, as a task if the store has to be waited for.
    fn start(self: &Arc<Self>) {
        self.spawner.run(Arc::clone(self).renew());
    }

    async fn renew(self: Arc<Self>) {
        loop {
            let Some((outstanding, pause)) = self.begin() else { return };
            let renewed = self.engine.renew_at(&outstanding, self.ttl).await;
            let pause = match renewed {
                Ok(Some(expires_in)) => self.renewed(expires_in),
                // It expired or was released: no counter knows it any more.
                Ok(None) => return,
                // The observer reports failures.
                Err(_) => pause / TRIES_PER_RENEWAL,
            };
            if self.schedule(pause) == Scheduled::Later {
                return;
            }
        }
    }

    fn begin(&self) -> Option<(Outstanding, Duration)> {
        let now = self.clock().now();
        let mut state = self.lock();
        state.scheduled = None;
        // The store may renew it and lose the reply.
        state.expires_at = state.expires_at.max(now + state.pause * RENEWALS_PER_TTL);
        Some((state.outstanding.clone()?, state.pause))
    }

    /// Keeps the time for which the reservation was renewed. Returns the pause until the next renewal.
    fn renewed(&self, expires_in: Duration) -> Duration {
        let (now, pause) = (self.clock().now(), expires_in / RENEWALS_PER_TTL);
        let mut state = self.lock();
        (state.expires_at, state.pause) = (now + expires_in, pause);
        pause
    }
}

impl Wake for Renewal {
    fn wake(self: Arc<Self>) {
        let mut state = self.lock();
        state.is_woken = true;
        // Without a time, a renewal is running and asks for the next wake-up itself.
        let is_due = state.scheduled.is_some() && !state.is_scheduling;
        if is_due {
            state.scheduled = None;
        }
        drop(state);
        if is_due {
            self.start();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock};
    use crate::rate_limiter::RateLimiter;
    use crate::rules::{Request, ReserveOptions, RuleSet};
    use std::task::{Context, Poll};

    const RULES: &str = "rules: [{id: all, scope: global, strategy: {concurrency: {limit: 1, hold: 30s}}}]";

    fn engine_by(clock: Arc<dyn Clock>) -> Arc<Engine> {
        let limiter = RateLimiter::builder().clock(clock).build().unwrap();
        Arc::new(Engine::local(Arc::new(limiter), RuleSet::from_yaml(RULES, "rules.yaml").unwrap()))
    }

    fn now<F: Future>(future: F) -> F::Output {
        match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("counters in this process never wait"),
        }
    }

    fn reserve(engine: &Arc<Engine>) -> Reservation {
        let options = ReserveOptions::new(Duration::from_secs(600)).unwrap();
        now(engine.reserve(&Request::new(&[]), &options)).unwrap()
    }

    #[test]
    fn a_reservation_outlasts_its_hold_while_it_is_needed() {
        let clock = Arc::new(ManualClock::default());
        let engine = engine_by(clock.clone());
        let held = reserve(&engine).renewing(Duration::from_secs(600));
        for _ in 0..100 {
            clock.advance(Duration::from_secs(10));
            assert!(!reserve(&engine).is_allowed());
        }
        assert!(clock.next_wake().is_some());
        held.settle(FinalCosts::Estimate);
        assert!(reserve(&engine).is_allowed());
        assert_eq!(clock.next_wake(), None, "no timer is left");
        assert_eq!(Arc::strong_count(&held.renewal), 1);
    }

    #[test]
    fn a_reservation_that_was_lost_is_not_renewed() {
        let clock = Arc::new(ManualClock::default());
        let engine = engine_by(clock.clone());
        let held = reserve(&engine).renewing(Duration::from_secs(600));
        let key = "all".to_owned();
        let holders = now(engine.holders(&key)).unwrap().unwrap();
        assert_eq!(now(engine.release_holder(&key, &holders[0].id)), Ok(Some(true)));
        clock.advance(Duration::from_secs(10));
        assert_eq!(clock.next_wake(), None);
        drop(held);
    }

    /// A clock that wakes at once, whatever it is asked, and one that cannot advance.
    #[derive(Debug)]
    struct Hasty(Timestamp);

    impl Clock for Hasty {
        fn now(&self) -> Timestamp {
            self.0
        }

        fn wake_at(&self, _: Timestamp, waker: &Waker) {
            waker.wake_by_ref();
        }
    }

    #[test]
    fn a_clock_that_cannot_keep_time_keeps_no_thread_busy() {
        for now in [Timestamp::from_micros(1_000_000), Timestamp::MAX] {
            let engine = engine_by(Arc::new(Hasty(now)));
            let held = reserve(&engine).renewing(Duration::from_secs(600));
            assert!(!reserve(&engine).is_allowed());
            drop(held);
            assert!(reserve(&engine).is_allowed());
        }
    }
}
