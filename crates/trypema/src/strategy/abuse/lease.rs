//! Leases of the abuse strategy. The shared count counts each attempt as it is made, so no units are leased:
//! instances only remember blocks.

use super::{Abuse, AbuseLimit, AbuseOutcome, AbuseState, BlockedAttempts};
use crate::strategy::{Call, Leasable, LeaseCall, Leased, Strategy, Turn};

impl Leasable for Abuse {
    const IS_LEASED: bool = false;

    fn window_us(limit: &AbuseLimit) -> u64 {
        limit.temp.window_us.min(limit.long.window_us)
    }

    /// Counts the attempts that an instance denied because of a block that it remembered, if a block is still
    /// in force.
    fn lease(limit: &AbuseLimit, state: &mut AbuseState, call: LeaseCall<'_>) -> Leased<AbuseOutcome> {
        let LeaseCall { now, ask, .. } = call;
        let mut outcome = Self::decide(limit, state, Call::new(now, 0));
        if !outcome.blocks.is_none() && ask.seen > 0 {
            let call = Call::new(now, ask.seen);
            outcome = Self::decide(limit, state, call);
            Self::commit(limit, state, call, &outcome);
        }
        Leased { units: 0, recorded: now, outcome }
    }

    fn of_lease(_: &AbuseLimit, told: &AbuseOutcome, _: Turn<'_>) -> AbuseOutcome {
        *told
    }

    fn is_counting_denied(limit: &AbuseLimit) -> bool {
        limit.blocked_attempts != BlockedAttempts::Ignore
    }

    fn part(_: &AbuseLimit, _: u32, _: u32) -> Option<AbuseLimit> {
        None
    }
}
