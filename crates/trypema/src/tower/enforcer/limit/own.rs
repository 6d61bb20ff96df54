//! The fast path: counters in the layer's own limiter, in this process.

use std::sync::Arc;

use super::{CheckOutcome, CheckedRequest, CountingOptions, LimitEnforcer};
use crate::strategy::{Strategy, with_strategy};

impl LimitEnforcer {
    /// Counts a request before it is admitted, in a limiter that only this layer uses and that has no
    /// observer.
    #[inline]
    pub(super) fn check_in_own_limiter(
        self: &Arc<Self>,
        counter: &[u8],
        options: CountingOptions,
    ) -> CheckOutcome {
        with_strategy!(&self.limit, |S, limit| {
            let taken = self.limiter.local().limiter::<S>().take_bytes(counter, limit, options.cost);
            // The remaining units are computed only if the response reports them.
            if S::is_admitted(&taken.outcome) && !options.reports_quota {
                return CheckOutcome::Admitted;
            }
            let decision = S::core(&S::decision(limit, taken.outcome, taken.decided_at));
            CheckOutcome::Ready(Ok(CheckedRequest::without_follow_up(self.layer_decision(decision))))
        })
    }
}
