//! Leases of a fixed window.

use super::{FixedWindow, FixedWindowLimit, FixedWindowOutcome};
use crate::strategy::lease::part_of;
use crate::strategy::{Leasable, Turn};

impl Leasable for FixedWindow {
    fn window_us(limit: &FixedWindowLimit) -> u64 {
        limit.window.window_us
    }

    fn of_lease(_: &FixedWindowLimit, told: &FixedWindowOutcome, turn: Turn<'_>) -> FixedWindowOutcome {
        FixedWindowOutcome { is_admitted: true, remaining: told.remaining + turn.left - turn.cost, ..*told }
    }

    fn part(limit: &FixedWindowLimit, index: u32, count: u32) -> Option<FixedWindowLimit> {
        part_of(limit.limit, index, count).map(|part| FixedWindowLimit { limit: part, ..*limit })
    }
}
