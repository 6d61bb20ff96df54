//! Leases of a sliding-window counter.

use super::{SlidingWindow, SlidingWindowLimit, SlidingWindowOutcome};
use crate::strategy::lease::part_of;
use crate::strategy::{Leasable, LocalCall};

impl Leasable for SlidingWindow {
    fn window_us(limit: &SlidingWindowLimit) -> u64 {
        limit.window.window_us
    }

    fn leased_outcome(
        _: &SlidingWindowLimit,
        last_outcome: &SlidingWindowOutcome,
        call: LocalCall<'_>,
    ) -> SlidingWindowOutcome {
        let remaining = last_outcome.remaining + call.left - call.cost;
        SlidingWindowOutcome { is_admitted: true, needed: call.cost, remaining, ..*last_outcome }
    }

    fn part(limit: &SlidingWindowLimit, index: u32, count: u32) -> Option<SlidingWindowLimit> {
        part_of(limit.limit, index, count).map(|part| SlidingWindowLimit { limit: part, ..*limit })
    }
}
