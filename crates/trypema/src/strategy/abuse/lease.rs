//! Leases of the abuse strategy. The shared count counts each attempt as it is made, so no units are leased:
//! instances only remember blocks.

use super::{Abuse, AbuseLimit, AbuseOutcome, AbuseState, BlockedAttempts};
use crate::strategy::{Call, Leasable, LeaseCall, LeaseGrant, LocalCall, Origin, Strategy};

impl Leasable for Abuse {
    const IS_LEASED: bool = false;

    fn window_us(limit: &AbuseLimit) -> u64 {
        limit.temp.window_us.min(limit.long.window_us)
    }

    /// Counts the attempts that an instance denied because of a block that it remembered, if a block is still
    /// in force.
    fn lease(limit: &AbuseLimit, state: &mut AbuseState, call: LeaseCall<'_>) -> LeaseGrant<AbuseOutcome> {
        let LeaseCall { now, params, .. } = call;
        let mut outcome = Self::decide(limit, state, Call::new(now, 0));
        if !outcome.blocks.is_none() && params.reported > 0 {
            let call = Call::new(now, params.reported);
            outcome = Self::decide(limit, state, call);
            Self::commit(limit, state, call, &outcome);
        }
        LeaseGrant { units: 0, recorded: now, origin: Origin::default(), outcome }
    }

    fn leased_outcome(_: &AbuseLimit, last_outcome: &AbuseOutcome, _: LocalCall<'_>) -> AbuseOutcome {
        *last_outcome
    }

    fn reports_local_calls(limit: &AbuseLimit) -> bool {
        limit.blocked_attempts != BlockedAttempts::Ignore
    }

    fn part(_: &AbuseLimit, _: u32, _: u32) -> Option<AbuseLimit> {
        None
    }
}
