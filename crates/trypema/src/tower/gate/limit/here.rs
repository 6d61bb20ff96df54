//! Counters in this process, which answer at once.

use std::sync::Arc;

use super::{Counting, Finding, Found, LimitGate, Settled, Terms, with_limiter};
use crate::decision::Decision;
use crate::local::{Limiter, Receipt, Reservation};
use crate::strategy::Strategy;

impl LimitGate {
    pub(super) fn ask_here(self: &Arc<Self>, counter: &str, Terms { cost, counting }: Terms) -> Found {
        match counting {
            Counting::Before => Found::settled(Finding::Limit(self.take(counter, cost))),
            Counting::Reserving => {
                let Reservation { decision, receipt } = self.reserve(counter, cost);
                let (gate, counter) = (Arc::clone(self), counter.to_owned());
                Found::new(Finding::Limit(decision), move || {
                    if let Some(receipt) = receipt {
                        gate.refund(&counter, &receipt);
                    }
                    Settled::Now(None)
                })
            }
            Counting::After => {
                let decision = self.peek(counter, self.looking(cost));
                let (gate, counter) = (Arc::clone(self), counter.to_owned());
                Found::new(Finding::Limit(decision), move || {
                    // The response is made, so a denial changes nothing for it.
                    Settled::Now(Some(Finding::Limit(gate.take(&counter, cost))))
                })
            }
        }
    }

    fn take(&self, counter: &str, cost: u64) -> Decision {
        fn core<S: Strategy>(limiter: &Limiter<S>, limit: &S::Limit, (counter, cost): (&str, u64)) -> Decision {
            S::core(&limiter.take(counter, limit, cost))
        }
        with_limiter!(self.limiter.local(), &self.limit, |limiter, limit| core(limiter, limit, (counter, cost)))
    }

    fn peek(&self, counter: &str, cost: u64) -> Decision {
        fn core<S: Strategy>(limiter: &Limiter<S>, limit: &S::Limit, (counter, cost): (&str, u64)) -> Decision {
            S::core(&limiter.peek(counter, limit, cost))
        }
        with_limiter!(self.limiter.local(), &self.limit, |limiter, limit| core(limiter, limit, (counter, cost)))
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
        with_limiter!(self.limiter.local(), &self.limit, |limiter, limit| core(limiter, limit, (counter, cost)))
    }

    fn refund(&self, counter: &str, receipt: &Receipt) {
        with_limiter!(self.limiter.local(), &self.limit, |limiter, limit| {
            limiter.refund(counter, limit, receipt);
        });
    }
}
