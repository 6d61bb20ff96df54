//! Counters in a limiter of this layer's own: the shortest way, for the usual case.

use std::sync::Arc;

use super::{Asked, Found, LimitGate, Terms};
use crate::local::Holds;
use crate::strategy::{Strategy, with_strategy};

impl LimitGate {
    /// Counts before the request is let in, in a limiter that nobody else uses and nobody watches.
    #[inline]
    pub(super) fn ask_alone(self: &Arc<Self>, counter: &[u8], terms: Terms) -> Asked {
        with_strategy!(&self.limit, |S, limit| {
            let found = Holds::<S>::limiter(self.limiter.local()).taken_by_bytes(counter, limit, terms.cost);
            // The remaining units are computed only if the response tells them.
            if S::is_admitted(&found.outcome) && !terms.is_told {
                return Asked::Passed;
            }
            let decision = S::core(&S::decision(limit, found.outcome, found.when));
            Asked::Now(Ok(Found::settled(self.finding(decision))))
        })
    }
}
