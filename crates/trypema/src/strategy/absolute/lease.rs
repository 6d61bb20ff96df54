//! Leases of an absolute limit.

use super::{Absolute, AbsoluteLimit, AbsoluteOutcome};
use crate::strategy::lease::part_of;
use crate::strategy::{Leasable, Turn};

impl Leasable for Absolute {
    fn window_us(limit: &AbsoluteLimit) -> u64 {
        limit.window_us
    }

    fn of_lease(_: &AbsoluteLimit, told: &AbsoluteOutcome, turn: Turn<'_>) -> AbsoluteOutcome {
        AbsoluteOutcome { is_admitted: true, remaining: told.remaining + turn.left - turn.cost, ..*told }
    }

    fn part(limit: &AbsoluteLimit, index: u32, count: u32) -> Option<AbsoluteLimit> {
        part_of(limit.capacity, index, count).map(|capacity| AbsoluteLimit { capacity, ..*limit })
    }
}
