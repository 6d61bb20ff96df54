//! Counters in this process, which answer at once.

use std::sync::Arc;

use super::{Asked, Counting, Found, LimitGate, Settled, Terms};
use crate::decision::Decision;
use crate::local::{Holds, Receipt, Reservation};
use crate::strategy::{Strategy, with_strategy};

impl LimitGate {
    /// Counts before the request is let in, in a limiter that nobody else uses and nobody watches.
    #[inline]
    pub(super) fn ask_alone(self: &Arc<Self>, counter: &[u8], terms: Terms) -> Asked {
        with_strategy!(&self.limit, |S, limit| {
            let found = Holds::<S>::limiter(self.limiter.local()).taken_by_bytes(counter, limit, terms.cost);
            // What is left is only worked out where somebody is told.
            if S::is_admitted(&found.outcome) && !terms.is_told {
                return Asked::Passed;
            }
            let decision = S::core(&S::decision(limit, found.outcome, found.when));
            Asked::Now(Ok(Found::settled(self.finding(decision))))
        })
    }

    pub(super) fn ask_here(self: &Arc<Self>, counter: &str, terms: Terms) -> Asked {
        let found = match terms.counting {
            Counting::Before => Found::settled(self.finding(self.take(counter, terms.cost))),
            Counting::Reserving => self.reserve_here(counter, terms.cost),
            Counting::After => self.look_here(counter, terms.cost),
        };
        Asked::Now(Ok(found))
    }

    fn reserve_here(self: &Arc<Self>, counter: &str, cost: u64) -> Found {
        let Reservation { decision, receipt } = self.reserve(counter, cost);
        let (gate, counter) = (Arc::clone(self), counter.to_owned());
        Found::new(self.finding(decision), move || {
            if let Some(receipt) = receipt {
                gate.refund(&counter, &receipt);
            }
            Settled::Now(None)
        })
    }

    fn look_here(self: &Arc<Self>, counter: &str, cost: u64) -> Found {
        let decision = self.peek(counter, self.looking(cost));
        let (gate, counter) = (Arc::clone(self), counter.to_owned());
        // When it is charged the response is made, so a denial changes nothing for it.
        Found::new(self.finding(decision), move || {
            Settled::Now(Some(gate.finding(gate.take(&counter, cost))))
        })
    }

    fn take(&self, counter: &str, cost: u64) -> Decision {
        with_strategy!(&self.limit, |S, limit| {
            S::core(&Holds::<S>::limiter(self.limiter.local()).take(counter, limit, cost))
        })
    }

    fn peek(&self, counter: &str, cost: u64) -> Decision {
        with_strategy!(&self.limit, |S, limit| {
            S::core(&Holds::<S>::limiter(self.limiter.local()).peek(counter, limit, cost))
        })
    }

    fn reserve(&self, counter: &str, cost: u64) -> Reservation<Decision> {
        with_strategy!(&self.limit, |S, limit| {
            let reserved = Holds::<S>::limiter(self.limiter.local()).reserve(counter, limit, cost);
            Reservation { decision: S::core(&reserved.decision), receipt: reserved.receipt }
        })
    }

    fn refund(&self, counter: &str, receipt: &Receipt) {
        with_strategy!(&self.limit, |S, limit| {
            Holds::<S>::limiter(self.limiter.local()).refund(counter, limit, receipt);
        });
    }
}
