//! The background loop: asks for leases before they run out, gives back what has ended, and says that this instance
//! lives.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::hub::{Errand, Hub, LIVE_FOR};
use super::provider::Inner;
use crate::clock::Timestamp;

/// Errands under way at once at most; more wait their turn. They travel together, so this is a few script calls.
const MAX_UNDER_WAY: usize = 512;

/// Rounds without a pause: then others get their turn on this thread.
const MAX_ROUNDS: usize = 16;

/// What the loop is doing.
pub(super) struct Crew {
    inner: Weak<Inner>,
    hub: Arc<Hub>,
    under_way: Vec<Errand>,
    waiting: Vec<Errand>,
    next_look: Timestamp,
    next_sign: Timestamp,
    /// When the clock will wake it.
    alarm: Option<(Timestamp, Waker)>,
}

/// Runs until nobody uses the provider any more. A second one ends at once.
pub(super) async fn run(inner: Weak<Inner>, hub: Arc<Hub>) {
    if !hub.start() {
        return;
    }
    let now = hub.clock.now();
    let mut crew = Crew {
        inner,
        hub,
        under_way: Vec::new(),
        waiting: Vec::new(),
        next_look: now,
        next_sign: now,
        alarm: None,
    };
    poll_fn(move |context| crew.work(context)).await;
}

impl Crew {
    fn work(&mut self, context: &mut Context<'_>) -> Poll<()> {
        for _ in 0..MAX_ROUNDS {
            let Some(inner) = self.inner.upgrade() else { return Poll::Ready(()) };
            let rung = self.hub.listen(context.waker());
            let is_idle = rung.is_none();
            self.waiting.extend(rung.into_iter().flatten());
            inner.waiting_errands(&mut self.waiting);
            self.look_around(&inner);
            drop(inner);
            let free = MAX_UNDER_WAY.saturating_sub(self.under_way.len()).min(self.waiting.len());
            self.under_way.extend(self.waiting.drain(..free));
            let before = self.under_way.len();
            self.under_way.retain_mut(|errand| errand.as_mut().poll(context).is_pending());
            let is_moving = self.under_way.len() < before && !self.waiting.is_empty();
            if is_idle && !is_moving {
                self.set_alarm(context);
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn set_alarm(&mut self, context: &Context<'_>) {
        let is_set =
            |(at, waker): &(Timestamp, Waker)| *at == self.next_look && waker.will_wake(context.waker());
        if !self.alarm.as_ref().is_some_and(is_set) {
            self.hub.clock.wake_at(self.next_look, context.waker());
            self.alarm = Some((self.next_look, context.waker().clone()));
        }
    }

    /// What is due by the clock.
    fn look_around(&mut self, inner: &Arc<Inner>) {
        let now = self.hub.clock.now();
        if now >= self.next_sign {
            self.waiting.push(inner.sign_of_life());
            self.next_sign = now + LIVE_FOR / 3;
        }
        if now >= self.next_look {
            inner.chores(&mut self.waiting);
            self.next_look = now + Duration::from_micros((self.hub.sync_us / 2).max(1_000));
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.hub.stop();
        // What nobody will do is as if it had not been asked for.
        if let Some(inner) = self.inner.upgrade() {
            inner.waiting_errands(&mut self.waiting);
        }
        self.waiting.clear();
    }
}
