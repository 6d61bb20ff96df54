//! The token bucket's state: what is owed to each limit, and the count that the units joined.

use super::PerLimit;
use super::debt::{self, Debt, Pending, Repayment};
use super::limits::{Rate, TokenBucketLimits, TokenLimit};
use crate::strategy::origin::{CountId, NumberPair};

/// The token bucket's state of a key: the debt to each limit, not the tokens that are left, so that spent
/// units still count after a change of the capacity.
#[derive(Debug, Clone, Default)]
pub struct TokenBucketState(pub(super) Debts);

#[derive(Debug, Clone)]
pub(super) enum Debts {
    One(OneDebt),
    Many(Box<ManyDebts>),
}

/// The debt to a single limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct OneDebt {
    /// The time of the debt, and the debt.
    last_and_owed: NumberPair,
    rate: Rate,
}

#[derive(Debug, Clone)]
pub(super) struct ManyDebts {
    pub(super) last: u64,
    pub(super) debts: Vec<Debt>,
    /// Units that count from a later time on, ordered by that time.
    pub(super) pending: Vec<Pending>,
    count: CountId,
}

impl OneDebt {
    #[inline(always)]
    pub(super) fn new(last: u64, debt: Debt, count: CountId) -> Self {
        Self { last_and_owed: NumberPair::new(last, debt.owed, count), rate: debt.rate }
    }

    #[inline(always)]
    pub(super) fn last(self) -> u64 {
        self.last_and_owed.first()
    }

    #[inline(always)]
    pub(super) fn debt(self) -> Debt {
        Debt { owed: self.last_and_owed.second(), rate: self.rate }
    }

    #[inline(always)]
    pub(super) fn count(self) -> CountId {
        self.last_and_owed.count()
    }
}

impl Default for Debts {
    fn default() -> Self {
        Self::One(OneDebt::new(0, Debt::NONE, CountId::default()))
    }
}

impl TokenBucketState {
    /// Returns the time of the stored debts, or 0 if there are none and the time does not matter.
    #[inline]
    pub(super) fn last(&self) -> u64 {
        match &self.0 {
            Debts::One(one) if one.debt().is_none() => 0,
            Debts::One(one) => one.last(),
            Debts::Many(many) if many.is_none() => 0,
            Debts::Many(many) => many.last,
        }
    }

    fn is_none(&self) -> bool {
        match &self.0 {
            Debts::One(one) => one.debt().is_none(),
            Debts::Many(many) => many.is_none(),
        }
    }

    pub(super) fn count(&self) -> CountId {
        match &self.0 {
            Debts::One(one) => one.count(),
            Debts::Many(many) => many.count,
        }
    }

    /// Returns the count that units join which are recorded by `limits` at `now`.
    fn count_after(&self, limits: &TokenBucketLimits, now: u64) -> CountId {
        match self.is_none() {
            true => CountId::begun_at(now),
            false if self.is_whole(limits) => self.count(),
            false => self.count().next(),
        }
    }

    /// Whether all units of the count are debts to `limits`: they were refilled at the same rates, and none is
    /// forgiven. So the part of a call's units that is not refilled is certain.
    pub(super) fn is_whole(&self, limits: &TokenBucketLimits) -> bool {
        let tokens = self.pending().iter().fold(0, |sum: u64, pending| sum.saturating_add(pending.units));
        let is_whole = |(debt, limit): (&Debt, &TokenLimit)| debt.is_whole(limit, limit.units_of_any(tokens));
        let whole = |debts: &[Debt]| {
            debts.len() == limits.as_slice().len() && debts.iter().zip(limits.as_slice()).all(is_whole)
        };
        match &self.0 {
            Debts::One(one) => whole(&[one.debt()]),
            Debts::Many(many) => whole(&many.debts),
        }
    }

    /// Returns the stored debt to the limit at `position`. If the number of limits has changed, the positions
    /// no longer match: then returns the largest debt, overdrawn if any is, which is stricter.
    pub(super) fn debt(&self, limits: &TokenBucketLimits, position: usize) -> Debt {
        let one;
        let debts = match &self.0 {
            Debts::One(only) => {
                one = [only.debt()];
                one.as_slice()
            }
            Debts::Many(many) => &many.debts,
        };
        if debts.len() == limits.as_slice().len() {
            return debts.get(position).copied().unwrap_or(Debt::NONE);
        }
        debts.iter().copied().reduce(Debt::larger).unwrap_or(Debt::NONE)
    }

    #[inline]
    pub(super) fn pending(&self) -> &[Pending] {
        match &self.0 {
            Debts::One(_) => &[],
            Debts::Many(many) => &many.pending,
        }
    }

    /// Returns the time at which debts are evaluated: not before the stored time, unless the clock went back
    /// by more than the longest refill. In that case, all history counts as happening now.
    #[inline]
    pub(super) fn evaluation_time(&self, limits: &TokenBucketLimits, now: u64) -> u64 {
        let last = self.last();
        if last > now + limits.retention_us() { now } else { now.max(last) }
    }

    /// Returns the debt to the limit at `position` at time `at`, divided into due and pending units.
    pub(super) fn owed(&self, limits: &TokenBucketLimits, position: usize, at: u64) -> debt::OwedUnits {
        let limit = &limits.as_slice()[position];
        let debt = self.debt(limits, position);
        let (owed, last, most) = (debt.owed_to(limit), self.last(), debt.most_owed_to(limit));
        match self.pending() {
            [] => {
                let due = limit.drained(owed, at.saturating_sub(last));
                debt::OwedUnits { due, pending: 0, most }
            }
            pending => debt::with_pending(limit, pending, Repayment { owed, last, at, most }),
        }
    }

    /// Replaces the debts by `after`. Drops the pending units that have become due by then.
    #[inline]
    pub(super) fn set(&mut self, limits: &TokenBucketLimits, after: DebtsAfter) {
        let DebtsAfter { at, owed, overdrawn } = after;
        let count = self.count_after(limits, at);
        let debt = |(position, limit): (usize, &TokenLimit)| {
            let debt = Debt::new(limit, owed[position]);
            if overdrawn & 1 << position == 0 { debt } else { debt.overdrawn() }
        };
        if let ([limit], []) = (limits.as_slice(), self.pending()) {
            self.0 = Debts::One(OneDebt::new(at, debt((0, limit)), count));
            return;
        }
        let debts = limits.as_slice().iter().enumerate().map(debt);
        match &mut self.0 {
            Debts::Many(many) => {
                (many.last, many.count) = (at, count);
                many.debts.clear();
                many.debts.extend(debts);
                many.pending.retain(|pending| pending.stamp > at);
            }
            Debts::One(_) => {
                let many = ManyDebts { last: at, debts: debts.collect(), pending: Vec::new(), count };
                self.0 = Debts::Many(Box::new(many));
            }
        }
    }

    /// Makes all units due at `at`, after the clock went back to it. Debts stay in the units in which they
    /// were counted, because the limits may have changed.
    pub(super) fn make_all_due(&mut self, at: u64) {
        match &mut self.0 {
            Debts::One(one) => *one = OneDebt::new(at, one.debt(), one.count()),
            Debts::Many(many) => {
                let units =
                    many.pending.drain(..).fold(0, |sum: u64, pending| sum.saturating_add(pending.units));
                many.debts.iter_mut().for_each(|debt| debt.add(units));
                many.last = at;
            }
        }
    }

    /// Adds units that count from `stamp` on.
    pub(super) fn postpone(&mut self, stamp: u64, units: u64) {
        if let Debts::One(one) = self.0 {
            let (last, debts, pending, count) = (one.last(), vec![one.debt()], Vec::new(), one.count());
            self.0 = Debts::Many(Box::new(ManyDebts { last, debts, pending, count }));
        }
        if let Debts::Many(many) = &mut self.0 {
            debt::insert(&mut many.pending, Pending { stamp, units });
        }
    }
}

impl ManyDebts {
    fn is_none(&self) -> bool {
        self.pending.is_empty() && self.debts.iter().all(Debt::is_none)
    }
}

/// The debts that a call or a refund leaves.
pub(super) struct DebtsAfter {
    pub(super) at: u64,
    /// The due units to each limit.
    pub(super) owed: PerLimit,
    /// The limits that are overdrawn, as a bit for each position. There are at most 16 limits.
    pub(super) overdrawn: u32,
}

impl DebtsAfter {
    pub(super) fn new(limits: &TokenBucketLimits, at: u64) -> Self {
        Self { at, owed: PerLimit::zeros(limits.as_slice().len()), overdrawn: 0 }
    }
}
