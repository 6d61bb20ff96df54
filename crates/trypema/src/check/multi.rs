//! Several checks in one request to a provider, with one deadline for all and a result for each.
#![cfg_attr(
    not(all(feature = "_redis", feature = "rules")),
    allow(dead_code, reason = "deadlines and failures need Redis, receipts of any provider need rules")
)]

use std::time::Duration;

use super::{Check, MultiDecision};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::strategy::{Effect, Payment, Spend};

/// The decision on one check, or the failure of its store.
pub(crate) type CheckResult = Result<Decision, TrypemaError>;

/// Decides one check by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecideRequest<'a> {
    pub(crate) check: Check<'a>,
    pub(crate) effect: Effect,
    pub(crate) payment: Payment,
}

impl<'a> DecideRequest<'a> {
    pub(crate) fn new(effect: Effect, check: Check<'a>) -> Self {
        Self { check, effect, payment: check.payment() }
    }

    pub(crate) fn all(effect: Effect, checks: &[Check<'a>]) -> Vec<Self> {
        checks.iter().map(|check| Self::new(effect, *check)).collect()
    }

    /// Records the cost even if nothing is left. The decision is allowed, and shows what is left afterwards. (An abuse
    /// limit counts an attempt as usual.)
    pub(crate) fn debit(check: Check<'a>) -> Self {
        Self { payment: Payment::Debit, ..Self::new(Effect::Take, check) }
    }

    pub(crate) fn spend(&self) -> Spend {
        Spend { cost: self.check.cost, payment: self.payment }
    }
}

/// The checks of one request.
#[derive(Clone, Copy)]
pub(crate) struct TakeRequest<'a> {
    /// Checks that are taken all or nothing.
    pub(crate) checks: &'a [Check<'a>],
    /// Checks that are each taken on their own, whatever the results of the others.
    pub(crate) independent: &'a [Check<'a>],
    /// Whether the other checks may be spent although the server of a check of `checks` is unreachable: the failure policy
    /// decides that one. A missing entry means that nothing is spent.
    pub(crate) may_fail: &'a [bool],
    pub(crate) receipts: Receipts,
    pub(crate) deadline: Deadline,
}

impl<'a> TakeRequest<'a> {
    /// Returns a request that takes `checks` or, if one of them fails, nothing.
    pub(crate) fn new(checks: &'a [Check<'a>], deadline: Deadline) -> Self {
        Self { checks, independent: &[], may_fail: &[], receipts: Receipts::Unwanted, deadline }
    }

    /// Whether it has no checks.
    pub(crate) fn is_empty(&self) -> bool {
        self.checks.is_empty() && self.independent.is_empty()
    }

    /// Returns whether the request continues if the check at `index` fails.
    pub(crate) fn may_fail(&self, index: usize) -> bool {
        self.may_fail.get(index).copied().unwrap_or(false)
    }
}

/// Whether the caller may refund the takes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receipts {
    Unwanted,
    Wanted,
}

/// The results of a [`TakeRequest`].
///
/// The checks of `checks` were spent if every decision allows and every failure was
/// allowed by `may_fail`; otherwise none was.
#[derive(Debug)]
pub(crate) struct TakeResponse<R> {
    /// One entry per check of `checks`. `None` for a check that failed, or that was skipped because another
    /// one was denied first.
    pub(crate) decisions: Vec<Option<Decision>>,
    /// The checks of `checks` whose store failed.
    pub(crate) failures: Vec<Failed>,
    /// The receipts of the takes, in the order of `checks`. Empty if a check was denied, or if receipts
    /// were not requested and no check failed.
    pub(crate) receipts: Vec<Option<R>>,
    /// One result per check of `independent`.
    pub(crate) independent: Vec<CheckResult>,
    /// The receipts of `independent`, if the request is a reservation.
    pub(crate) independent_receipts: Vec<Option<R>>,
}

/// A check whose store failed.
#[derive(Debug, Clone)]
pub(crate) struct Failed {
    /// The index of the check.
    pub(crate) index: usize,
    pub(crate) error: TrypemaError,
}

impl<R> TakeResponse<R> {
    /// Returns the response to a request without checks.
    pub(crate) fn empty() -> Self {
        Self::of_decisions(Vec::new())
    }

    /// Returns a response without failures and receipts.
    pub(crate) fn of_decisions(decisions: Vec<Option<Decision>>) -> Self {
        Self {
            decisions,
            failures: Vec::new(),
            receipts: Vec::new(),
            independent: Vec::new(),
            independent_receipts: Vec::new(),
        }
    }

    /// Returns the same response with converted receipts.
    pub(crate) fn map_receipts<T>(self, map: impl Fn(R) -> T) -> TakeResponse<T> {
        let converted =
            |receipts: Vec<Option<R>>| receipts.into_iter().map(|receipt| receipt.map(&map)).collect();
        TakeResponse {
            decisions: self.decisions,
            failures: self.failures,
            receipts: converted(self.receipts),
            independent: self.independent,
            independent_receipts: converted(self.independent_receipts),
        }
    }

    /// Returns the same response without receipts.
    pub(crate) fn without_receipts<T>(self) -> TakeResponse<T> {
        let Self { decisions, failures, independent, .. } = self;
        TakeResponse { failures, independent, ..TakeResponse::of_decisions(decisions) }
    }

    /// Drops the receipts of a request that spent nothing. A check that would fit has a receipt even if
    /// another one was denied.
    pub(crate) fn without_unspent_receipts(mut self) -> Self {
        if !self.is_allowed() {
            self.receipts.clear();
        }
        self
    }

    /// Whether every decided check is allowed.
    pub(crate) fn is_allowed(&self) -> bool {
        self.decisions.iter().flatten().all(Decision::is_allowed)
    }

    /// Converts to the public form, for callers without a failure policy. Fails with the first failure.
    pub(crate) fn into_multi_decision(self) -> Result<MultiDecision<R>, TrypemaError> {
        if let Some(failed) = self.failures.into_iter().next() {
            return Err(failed.error);
        }
        let is_allowed = self.decisions.iter().flatten().all(Decision::is_allowed);
        let decisions = self.decisions.into_iter().flatten().collect();
        Ok(MultiDecision { is_allowed, decisions, receipts: self.receipts })
    }
}

/// The conversion for a provider that never fails.
impl<R> From<MultiDecision<R>> for TakeResponse<R> {
    fn from(multi: MultiDecision<R>) -> Self {
        let decisions = multi.decisions.into_iter().map(Some).collect();
        Self { receipts: multi.receipts, ..Self::of_decisions(decisions) }
    }
}

/// The deadline by which a request stops waiting for its store, however many checks and calls it needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    from: Timestamp,
    time: Duration,
}

impl Deadline {
    /// A deadline that never passes, for providers that do not wait.
    pub(crate) const NEVER: Self = Self { from: Timestamp::derived(0), time: Duration::MAX };

    /// Returns a deadline that passes after `time`.
    pub(crate) fn after(time: Duration) -> Self {
        Self { from: SystemClock.now(), time }
    }

    /// Returns the last time to wait for a reply.
    pub(crate) fn until(self) -> Timestamp {
        self.from + self.time
    }

    /// Returns the time until which a step waits whose failure makes refunds necessary. A fifth of the whole
    /// time is reserved for the refunds.
    pub(crate) fn before_rollback(self) -> Timestamp {
        self.fifths(4).until()
    }

    /// Returns the deadline of the first of two steps: one server that does not reply must not use up the
    /// time of the others.
    pub(crate) fn of_first_step(self) -> Self {
        self.fifths(2)
    }

    fn fifths(self, count: u32) -> Self {
        Self { time: self.time / 5 * count, ..self }
    }
}
