//! The fast path for one limit without pending units.

use super::debt::Debt;
use super::state::{Debts, OneDebt};
use super::{PerLimit, TokenBucketLimits, TokenBucketOutcome, TokenBucketState, TokenLimit};
use crate::strategy::Call;
use crate::strategy::origin::CountId;

/// A bucket of one limit.
pub(super) struct SingleLimit<'a> {
    limit: &'a TokenLimit,
    last: u64,
    debt: Debt,
    count: CountId,
}

impl<'a> SingleLimit<'a> {
    #[inline(always)]
    pub(super) fn of(limits: &'a TokenBucketLimits, state: &TokenBucketState) -> Option<Self> {
        match (limits.as_slice(), &state.0) {
            ([limit], Debts::One(one)) => {
                let debt = one.debt();
                // The time of a debt of zero does not matter.
                let last = if debt.is_none() { 0 } else { one.last() };
                Some(Self { limit, last, debt, count: one.count() })
            }
            _ => None,
        }
    }

    #[inline]
    pub(super) fn decide(&self, call: Call) -> TokenBucketOutcome {
        let now = call.now.as_micros();
        let is_stepped_back = self.last > now + self.limit.refill_us;
        let at = if is_stepped_back { now } else { now.max(self.last) };
        let due = self.due(at);
        TokenBucketOutcome { is_stepped_back, ..self.outcome(at, due, call) }
    }

    /// Decides a take. Returns the outcome and the debt that it leaves, unless the clock went back too far.
    #[inline(always)]
    pub(super) fn take(&self, call: Call) -> Option<(TokenBucketOutcome, OneDebt)> {
        let now = call.now.as_micros();
        if self.last > now + self.limit.refill_us {
            return None;
        }
        let at = now.max(self.last);
        let due = self.due(at);
        let outcome = self.outcome(at, due, call);
        if !outcome.is_admitted || call.cost == 0 {
            return Some((outcome, OneDebt::new(self.last, self.debt, self.count)));
        }
        let count = if self.debt.is_none() {
            CountId::begun_at(at)
        } else if self.debt.is_whole(self.limit, 0) {
            self.count
        } else {
            self.count.next()
        };
        let debt = Debt::new(self.limit, due + self.limit.units(call.cost));
        Some((outcome, OneDebt::new(at, debt, count)))
    }

    #[inline(always)]
    fn outcome(&self, at: u64, due: u64, call: Call) -> TokenBucketOutcome {
        let is_admitted = self.limit.has(due, call.needed) || call.needed == 0;
        TokenBucketOutcome {
            is_admitted,
            cost: if is_admitted { call.cost } else { call.needed },
            failed: 0,
            at,
            owed: PerLimit::one(due),
            not_before: None,
            resets_at: None,
            is_stepped_back: false,
        }
    }

    #[inline(always)]
    fn due(&self, at: u64) -> u64 {
        self.limit.drained(self.debt.owed_to(self.limit), at.saturating_sub(self.last))
    }
}
