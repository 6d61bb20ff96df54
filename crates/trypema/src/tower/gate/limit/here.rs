//! Counters in this process, which answer at once.

use std::sync::Arc;

use super::{Asked, Counting, Found, LimitGate, Settled, Terms, with_limiter};
use crate::decision::Decision;
use crate::local::{Limiter, Receipt, Reservation};
use crate::strategy::Strategy;

impl LimitGate {
    /// Counts before the request is let in, in a limiter that nobody else uses and nobody watches.
    #[inline]
    pub(super) fn ask_alone(&self, counter: &[u8], terms: Terms) -> Asked {
        #[inline]
        fn ask<S: Strategy>(
            limiter: &Limiter<S>,
            limit: &S::Limit,
            (counter, terms): (&[u8], Terms),
        ) -> Asked {
            let found = limiter.taken_by_bytes(counter, limit, terms.cost);
            // What is left is only worked out where somebody is told.
            if S::is_admitted(&found.outcome) && !terms.is_told {
                return Asked::Passed;
            }
            let decision = S::core(&S::decision(limit, found.outcome, found.when));
            Asked::Now(Ok(Found::settled(decision)))
        }
        with_limiter!(self.limiter.local(), &self.limit, |limiter, limit| ask(
            limiter,
            limit,
            (counter, terms)
        ))
    }

    pub(super) fn ask_here(self: &Arc<Self>, counter: &str, terms: Terms) -> Asked {
        let found = match terms.counting {
            Counting::Before => Found::settled(self.take(counter, terms.cost)),
            Counting::Reserving => self.reserve_here(counter, terms.cost),
            Counting::After => self.look_here(counter, terms.cost),
        };
        Asked::Now(Ok(found))
    }

    fn reserve_here(self: &Arc<Self>, counter: &str, cost: u64) -> Found {
        let Reservation { decision, receipt } = self.reserve(counter, cost);
        let (gate, counter) = (Arc::clone(self), counter.to_owned());
        Found::new(decision, move || {
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
        Found::new(decision, move || Settled::Now(Some(gate.take(&counter, cost).into())))
    }

    fn take(&self, counter: &str, cost: u64) -> Decision {
        fn core<S: Strategy>(
            limiter: &Limiter<S>,
            limit: &S::Limit,
            (counter, cost): (&str, u64),
        ) -> Decision {
            S::core(&limiter.take(counter, limit, cost))
        }
        with_limiter!(self.limiter.local(), &self.limit, |limiter, limit| core(
            limiter,
            limit,
            (counter, cost)
        ))
    }

    fn peek(&self, counter: &str, cost: u64) -> Decision {
        fn core<S: Strategy>(
            limiter: &Limiter<S>,
            limit: &S::Limit,
            (counter, cost): (&str, u64),
        ) -> Decision {
            S::core(&limiter.peek(counter, limit, cost))
        }
        with_limiter!(self.limiter.local(), &self.limit, |limiter, limit| core(
            limiter,
            limit,
            (counter, cost)
        ))
    }

    fn reserve(&self, counter: &str, cost: u64) -> Reservation<Decision> {
        fn core<S: Strategy>(
            limiter: &Limiter<S>,
            limit: &S::Limit,
            (counter, cost): (&str, u64),
        ) -> Reservation<Decision> {
            let Reservation { decision, receipt } = limiter.reserve(counter, limit, cost);
            Reservation { decision: S::core(&decision), receipt }
        }
        with_limiter!(self.limiter.local(), &self.limit, |limiter, limit| core(
            limiter,
            limit,
            (counter, cost)
        ))
    }

    fn refund(&self, counter: &str, receipt: &Receipt) {
        with_limiter!(self.limiter.local(), &self.limit, |limiter, limit| {
            limiter.refund(counter, limit, receipt);
        });
    }
}
