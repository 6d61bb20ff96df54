//! Leases of an absolute limit.

use super::{Absolute, AbsoluteLimit, AbsoluteOutcome};
use crate::strategy::lease::part_of;
use crate::strategy::{Leasable, LocalCall};

impl Leasable for Absolute {
    fn window_us(limit: &AbsoluteLimit) -> u64 {
        limit.window_us
    }

    fn leased_outcome(
        _: &AbsoluteLimit,
        last_outcome: &AbsoluteOutcome,
        call: LocalCall<'_>,
    ) -> AbsoluteOutcome {
        AbsoluteOutcome {
            is_admitted: true,
            remaining: last_outcome.remaining + call.left - call.cost,
            ..*last_outcome
        }
    }

    fn part(limit: &AbsoluteLimit, index: u32, count: u32) -> Option<AbsoluteLimit> {
        part_of(limit.capacity, index, count).map(|capacity| AbsoluteLimit { capacity, ..*limit })
    }
}
