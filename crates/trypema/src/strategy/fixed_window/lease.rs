//! Leases of a fixed window.

use super::{FixedWindow, FixedWindowLimit, FixedWindowOutcome};
use crate::strategy::lease::part_of;
use crate::strategy::{Leasable, LocalCall};

impl Leasable for FixedWindow {
    fn window_us(limit: &FixedWindowLimit) -> u64 {
        limit.windows.shortest_us()
    }

    fn leased_outcome(
        _: &FixedWindowLimit,
        last_outcome: &FixedWindowOutcome,
        call: LocalCall<'_>,
    ) -> FixedWindowOutcome {
        FixedWindowOutcome {
            is_admitted: true,
            remaining: last_outcome.remaining + call.left - call.cost,
            ..*last_outcome
        }
    }

    fn part(limit: &FixedWindowLimit, index: u32, count: u32) -> Option<FixedWindowLimit> {
        part_of(limit.limit, index, count).map(|part| FixedWindowLimit { limit: part, ..*limit })
    }
}
