//! The fast path: counters in the layer's own limiter, in this process.

use std::sync::Arc;

use super::{Asked, Found, LimitGate, Terms};
use crate::local::Holds;
use crate::strategy::{Strategy, with_strategy};

impl LimitGate {
    /// Counts a request before it is admitted, in a limiter that only this layer uses and that has no
    /// observer.
    #[inline]
    pub(super) fn ask_alone(self: &Arc<Self>, counter: &[u8], terms: Terms) -> Asked {
        with_strategy!(&self.limit, |S, limit| {
            let found = Holds::<S>::limiter(self.limiter.local()).taken_by_bytes(counter, limit, terms.cost);
            // The remaining units are computed only if the response reports them.
            if S::is_admitted(&found.outcome) && !terms.is_told {
                return Asked::Passed;
            }
            let decision = S::core(&S::decision(limit, found.outcome, found.when));
            Asked::Now(Ok(Found::settled(self.finding(decision))))
        })
    }
}
