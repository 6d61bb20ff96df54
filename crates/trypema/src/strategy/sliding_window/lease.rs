//! Leases of a sliding-window counter.

use super::{SlidingWindow, SlidingWindowLimit, SlidingWindowOutcome};
use crate::strategy::lease::part_of;
use crate::strategy::{Leasable, Turn};

impl Leasable for SlidingWindow {
    fn window_us(limit: &SlidingWindowLimit) -> u64 {
        limit.window.window_us
    }

    fn of_lease(_: &SlidingWindowLimit, told: &SlidingWindowOutcome, turn: Turn<'_>) -> SlidingWindowOutcome {
        let remaining = told.remaining + turn.left - turn.cost;
        SlidingWindowOutcome { is_admitted: true, cost: turn.cost, remaining, ..*told }
    }

    fn part(limit: &SlidingWindowLimit, index: u32, count: u32) -> Option<SlidingWindowLimit> {
        part_of(limit.limit, index, count).map(|part| SlidingWindowLimit { limit: part, ..*limit })
    }
}
