//! The common case: one limit, and nothing that counts later.

use super::debt::Debt;
use super::{Debts, TokenBucketLimits, TokenBucketOutcome, TokenBucketState, TokenLimit};
use crate::strategy::Call;

/// A bucket of one limit.
pub(super) struct Single<'a> {
    limit: &'a TokenLimit,
    last: u64,
    debt: Debt,
}

impl<'a> Single<'a> {
    #[inline]
    pub(super) fn of(limits: &'a TokenBucketLimits, state: &TokenBucketState) -> Option<Self> {
        match (limits.as_slice(), &state.0) {
            ([limit], Debts::One { last, debt }) => Some(Self { limit, last: *last, debt: *debt }),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn decide(&self, call: Call) -> TokenBucketOutcome {
        let now = call.now.as_micros();
        let is_stepped_back = self.last > now + self.limit.refill_us;
        let at = if is_stepped_back { now } else { now.max(self.last) };
        let due = self.due(at);
        let mut owed = [0; TokenLimit::MAX_PER_BUCKET];
        owed[0] = due;
        let is_admitted = self.limit.has(due, call.cost) || call.cost == 0;
        TokenBucketOutcome {
            is_admitted,
            cost: call.cost,
            failed: 0,
            at,
            owed,
            not_before: None,
            is_stepped_back,
        }
    }

    /// Whether anything is owed at the time of `call`.
    #[inline]
    pub(super) fn is_owed(&self, call: Call) -> bool {
        self.due(call.now.as_micros()) > 0
    }

    /// The state after `outcome`.
    #[inline]
    pub(super) fn paid(&self, call: Call, outcome: &TokenBucketOutcome) -> Debts {
        let paid = if outcome.is_admitted { self.limit.units(call.cost) } else { 0 };
        Debts::One { last: outcome.at, debt: Debt::new(self.limit, outcome.owed[0] + paid) }
    }

    #[inline]
    fn due(&self, at: u64) -> u64 {
        self.limit.drained(self.debt.owed_to(self.limit), at.saturating_sub(self.last))
    }
}
