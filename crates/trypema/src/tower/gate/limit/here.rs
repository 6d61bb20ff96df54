//! Counters in this process, which answer at once.

use std::sync::Arc;

use super::{Asked, Counting, Found, LimitGate, Settled, Terms, with_limiter};
use crate::decision::Decision;
use crate::local::{Limiter, Receipt, Reservation};
use crate::strategy::Strategy;

impl LimitGate {
    #[inline]
    pub(super) fn ask_here(self: &Arc<Self>, counter: &str, terms: Terms) -> Asked {
        match terms.counting {
            Counting::Before if terms.is_told => {
                Asked::Now(Ok(Found::settled(self.take(counter, terms.cost))))
            }
            Counting::Before => match self.denial(counter, terms.cost) {
                None => Asked::Passed,
                Some(decision) => Asked::Now(Ok(Found::settled(decision))),
            },
            Counting::Reserving => Asked::Now(Ok(self.reserve_here(counter, terms.cost))),
            Counting::After => Asked::Now(Ok(self.look_here(counter, terms.cost))),
        }
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

    /// Takes, and says no more than that it was done: what is left is only worked out for a denial.
    #[inline]
    fn denial(&self, counter: &str, cost: u64) -> Option<Decision> {
        #[inline]
        fn core<S: Strategy>(
            limiter: &Limiter<S>,
            limit: &S::Limit,
            (counter, cost): (&str, u64),
        ) -> Option<Decision> {
            let found = limiter.found(counter, limit, cost);
            let is_denied = !S::is_admitted(&found.outcome);
            is_denied.then(|| S::core(&S::decision(limit, found.outcome, found.when)))
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
