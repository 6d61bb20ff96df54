//! Leases of the concurrency strategy: there are none. A held unit has a holder, so it is always taken from
//! the shared count, and a denial is not remembered, because any holder may release its units at any time.

use super::{Concurrency, ConcurrencyLimit, ConcurrencyOutcome};
use crate::strategy::{Call, Leasable, LeaseCall, LeaseGrant, LocalCall, Origin, Strategy};

impl Leasable for Concurrency {
    const IS_LEASED: bool = false;
    const REMEMBERS_DENIALS: bool = false;

    fn window_us(limit: &ConcurrencyLimit) -> u64 {
        limit.hold_us
    }

    /// Grants nothing: units that are held have a holder. The outcome is that of the call that asked.
    fn lease(
        limit: &ConcurrencyLimit,
        state: &mut Self::State,
        call: LeaseCall<'_>,
    ) -> LeaseGrant<ConcurrencyOutcome> {
        let outcome = Self::decide(limit, state, Call::new(call.now, call.params.need.max(1)));
        LeaseGrant { units: 0, recorded: call.now, origin: Origin::default(), outcome }
    }

    fn leased_outcome(
        _: &ConcurrencyLimit,
        last_outcome: &ConcurrencyOutcome,
        _: LocalCall<'_>,
    ) -> ConcurrencyOutcome {
        *last_outcome
    }

    fn part(limit: &ConcurrencyLimit, index: u32, count: u32) -> Option<ConcurrencyLimit> {
        crate::strategy::lease::part_of(limit.limit, index, count)
            .map(|part| ConcurrencyLimit { limit: part, ..*limit })
    }
}
