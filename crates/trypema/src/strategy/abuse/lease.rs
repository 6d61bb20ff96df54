//! Attempts are counted as they are made, each by the shared count; only blocks are remembered.

use super::{Abuse, AbuseLimit, AbuseOutcome};
use crate::strategy::{Leasable, Turn};

impl Leasable for Abuse {
    const IS_LEASED: bool = false;

    fn window_us(limit: &AbuseLimit) -> u64 {
        limit.temp.window_us.min(limit.long.window_us)
    }

    fn of_lease(_: &AbuseLimit, told: &AbuseOutcome, _: Turn<'_>) -> AbuseOutcome {
        *told
    }

    fn is_counting_denied(limit: &AbuseLimit) -> bool {
        limit.is_counting_blocked
    }

    fn part(_: &AbuseLimit, _: u32, _: u32) -> Option<AbuseLimit> {
        None
    }
}
