//! The debt to a limit: units that were taken and have not been refilled yet, or that count from a later time
//! on.

use super::limits::{Rate, TokenLimit};
use crate::units::MAX_EXACT;

/// The largest number of pending entries. Beyond it, the two closest are merged.
pub(in crate::strategy) const MAX_PENDING: usize = 8;

/// A debt at some moment, with the rate by which it was counted.
///
/// A debt can exceed the capacity for two reasons. Units that were spent under a larger limit are forgiven down
/// to the capacity. An overdraft is not: its rate is [`Rate::overdrawn`], and it is counted up to
/// [`MAX_EXACT`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Debt {
    pub(super) owed: u64,
    pub(super) rate: Rate,
}

impl Debt {
    pub(super) const NONE: Self = Self { owed: 0, rate: Rate::one() };

    #[inline]
    pub(super) fn new(limit: &TokenLimit, owed: u64) -> Self {
        Self { owed, rate: limit.rate }
    }

    /// Returns the same debt, marked as overdrawn.
    pub(super) fn overdrawn(self) -> Self {
        Self { rate: self.rate.overdrawn(), ..self }
    }

    pub(super) fn is_overdrawn(&self) -> bool {
        self.rate.is_overdrawn()
    }

    #[inline]
    pub(super) fn is_none(&self) -> bool {
        self.owed == 0
    }

    /// Returns the debt of more tokens, overdrawn if either is.
    pub(super) fn larger(self, other: Self) -> Self {
        let tokens = |debt: &Self, by: &Self| u128::from(debt.owed) * u128::from(by.rate.unit());
        let larger = if tokens(&other, &self) > tokens(&self, &other) { other } else { self };
        if self.is_overdrawn() || other.is_overdrawn() { larger.overdrawn() } else { larger }
    }

    /// Whether refilling pays off this debt as it does a debt to `limit`, which forgives nothing of it and of
    /// `pending` units.
    #[inline(always)]
    pub(super) fn is_whole(&self, limit: &TokenLimit, pending: u64) -> bool {
        self.rate.not_overdrawn() == limit.rate && self.owed + pending <= self.most_owed_to(limit)
    }

    /// Adds `tokens` to the debt.
    pub(super) fn add(&mut self, tokens: u64) {
        let owed = self.owed.saturating_add(tokens.saturating_mul(self.rate.unit()));
        self.owed = owed.min(MAX_EXACT);
    }

    /// Returns the most units that this debt can be to `limit`.
    #[inline]
    pub(super) fn most_owed_to(&self, limit: &TokenLimit) -> u64 {
        if self.is_overdrawn() { MAX_EXACT } else { limit.full }
    }

    /// Returns the debt in the units of `limit`. It is at most the capacity, unless it is overdrawn.
    #[inline]
    pub(super) fn owed_to(&self, limit: &TokenLimit) -> u64 {
        if self.rate == limit.rate { self.owed.min(limit.full) } else { self.converted(limit) }
    }

    #[cold]
    fn converted(&self, limit: &TokenLimit) -> u64 {
        let owed = (u128::from(self.owed) * u128::from(limit.unit)).div_ceil(u128::from(self.rate.unit()));
        owed.min(u128::from(self.most_owed_to(limit))) as u64
    }

    /// Returns the time at which the debt is paid off, if it is as of `last`. Returns 0 if there is none.
    pub(super) fn paid_at(&self, last: u64) -> u64 {
        if self.owed == 0 { 0 } else { last.saturating_add(self.owed.div_ceil(self.rate.drain())) }
    }
}

/// Returns the time by which all debts and all pending units are paid off.
pub(super) fn all_paid_at(last: u64, debts: &[Debt], pending: &[Pending]) -> u64 {
    let from = pending.last().map_or(last, |pending| pending.stamp.max(last));
    let units = pending.iter().fold(0_u64, |sum, pending| sum.saturating_add(pending.units));
    let paid_at = |debt: &Debt| {
        let owed = debt.owed.saturating_add(units.saturating_mul(debt.rate.unit()));
        Debt { owed, ..*debt }.paid_at(from)
    };
    debts.iter().map(paid_at).max().unwrap_or(0)
}

/// Tokens that become due at a later time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) stamp: u64,
    pub(super) units: u64,
}

/// Inserts into a list ordered by time. If the list is full, merges the two closest entries into the later
/// one.
pub(super) fn insert(list: &mut Vec<Pending>, new: Pending) {
    let position = list.partition_point(|pending| pending.stamp < new.stamp);
    match list.get_mut(position) {
        Some(same) if same.stamp == new.stamp => same.units = same.units.saturating_add(new.units),
        _ => list.insert(position, new),
    }
    if list.len() > MAX_PENDING {
        let gap = |at: &usize| list[*at + 1].stamp - list[*at].stamp;
        let closest = (0..list.len() - 1).min_by_key(gap).unwrap_or(0);
        list[closest + 1].units = list[closest + 1].units.saturating_add(list[closest].units);
        list.remove(closest);
    }
}

/// Removes up to `units` that become due at or after `stamp`. Returns the number removed. Later entries are
/// included, because units may have been merged into them.
pub(super) fn remove(list: &mut Vec<Pending>, stamp: u64, units: u64) -> u64 {
    let mut left = units;
    let first = list.partition_point(|pending| pending.stamp < stamp);
    for pending in &mut list[first..] {
        let removed = left.min(pending.units);
        pending.units -= removed;
        left -= removed;
    }
    list.retain(|pending| pending.units > 0);
    units - left
}

/// A debt in the units of its limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwedUnits {
    /// Units that refilling pays off now.
    pub(super) due: u64,
    /// Units that become due at a later time.
    pub(super) pending: u64,
    /// The most units that are owed: the capacity, unless the debt is overdrawn.
    pub(super) most: u64,
}

impl OwedUnits {
    #[inline]
    pub(super) fn total(self) -> u64 {
        (self.due + self.pending).min(self.most)
    }
}

/// A debt that refilling pays off from `last` to `at`.
pub(super) struct Repayment {
    /// The debt at `last`.
    pub(super) owed: u64,
    pub(super) last: u64,
    pub(super) at: u64,
    /// The most units that are owed at any time.
    pub(super) most: u64,
}

/// Returns the debt at the end of a repayment. Pending units that become due meanwhile are added at that
/// time.
pub(super) fn with_pending(limit: &TokenLimit, pending: &[Pending], repayment: Repayment) -> OwedUnits {
    let Repayment { owed, last, at, most } = repayment;
    let (mut due, mut from, mut later) = (owed, last, 0_u64);
    for Pending { stamp, units } in pending {
        let units = limit.units_of_any(*units).min(most);
        if *stamp <= at {
            due = (limit.drained(due, stamp.saturating_sub(from)) + units).min(most);
            from = from.max(*stamp);
        } else {
            later += units;
        }
    }
    OwedUnits { due: limit.drained(due, at.saturating_sub(from)), pending: later.min(most), most }
}

/// A debt, and the amount to which it has to fall.
pub(super) struct Fall {
    /// The due units at `at`.
    pub(super) due: u64,
    pub(super) at: u64,
    /// The debt that may remain.
    pub(super) room: u64,
    /// The most units that are owed at any time.
    pub(super) most: u64,
}

/// Returns the first time at which a debt has fallen to `fall.room`. Pending units that become due after
/// `fall.at` are added to it.
pub(super) fn falls_to(limit: &TokenLimit, pending: &[Pending], fall: Fall) -> u64 {
    let Fall { due, at, room, most } = fall;
    let units_of = |pending: &Pending| limit.units_of_any(pending.units).min(most);
    let falls_at = |due: u64, from: u64, room: u64| from + due.saturating_sub(room).div_ceil(limit.drain);
    let later = || pending.iter().filter(|pending| pending.stamp > at);
    let (mut due, mut from, mut left) = (due, at, later().map(units_of).sum::<u64>());
    for pending in later() {
        if let Some(room) = room.checked_sub(left) {
            let moment = falls_at(due, from, room);
            if moment <= pending.stamp {
                return moment;
            }
        }
        let units = units_of(pending);
        due = (limit.drained(due, pending.stamp - from) + units).min(most);
        left -= units;
        from = pending.stamp;
    }
    falls_at(due, from, room)
}
