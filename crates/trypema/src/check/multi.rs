//! Several checks asked of a provider at once: one deadline for all, and a result for each.
#![cfg_attr(
    not(all(feature = "_redis", feature = "rules")),
    allow(dead_code, reason = "deadlines and failures need Redis, receipts of any provider need rules")
)]

use std::time::Duration;

use super::{Check, Together};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::decision::Decision;
use crate::error::TrypemaError;

/// The decision on one check, or the failure of its store.
pub(crate) type CheckResult = Result<Decision, TrypemaError>;

/// Checks to spend in one request.
#[derive(Clone, Copy)]
pub(crate) struct TakeRequest<'a> {
    /// Spent all or nothing.
    pub(crate) together: &'a [Check<'a>],
    /// Spent each on its own, whatever becomes of the others.
    pub(crate) alone: &'a [Check<'a>],
    /// One entry per check of `together`; a missing entry means [`IfUnreachable::Stop`].
    pub(crate) if_unreachable: &'a [IfUnreachable],
    pub(crate) receipts: Receipts,
    pub(crate) deadline: Deadline,
}

impl TakeRequest<'_> {
    /// Whether the request goes on if the check at this place fails.
    pub(crate) fn if_unreachable(&self, index: usize) -> IfUnreachable {
        self.if_unreachable.get(index).copied().unwrap_or(IfUnreachable::Stop)
    }
}

/// Whether the other checks may be spent although the server of this one is unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfUnreachable {
    /// Spend nothing.
    Stop,
    /// Spend the others; the failure policy decides this one.
    Continue,
}

/// Whether the caller may want to refund what it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receipts {
    Unwanted,
    Wanted,
}

/// The results of a [`TakeRequest`].
///
/// The checks of `together` were spent if every decision allows and every failure was
/// [`IfUnreachable::Continue`]; otherwise none was.
#[derive(Debug)]
pub(crate) struct TakeResponse<R> {
    /// One entry per check of `together`. `None` for a failed check, and for one that was left out because another check
    /// was denied first.
    pub(crate) decisions: Vec<Option<Decision>>,
    /// The checks of `together` whose store failed.
    pub(crate) failures: Vec<Failed>,
    /// Receipts of what was spent, in the order of `together`. Empty if a check is denied, and unless they were wanted or a
    /// check failed.
    pub(crate) receipts: Vec<Option<R>>,
    /// One result per check of `alone`.
    pub(crate) alone: Vec<CheckResult>,
}

/// A check that the store did not decide.
#[derive(Debug, Clone)]
pub(crate) struct Failed {
    /// Its place among the checks.
    pub(crate) index: usize,
    pub(crate) error: TrypemaError,
}

impl<R> TakeResponse<R> {
    /// The response to a request without checks.
    pub(crate) fn empty() -> Self {
        Self { decisions: Vec::new(), failures: Vec::new(), receipts: Vec::new(), alone: Vec::new() }
    }

    /// The same response with other receipts.
    pub(crate) fn map_receipts<T>(self, map: impl Fn(R) -> T) -> TakeResponse<T> {
        let receipts = self.receipts.into_iter().map(|receipt| receipt.map(&map)).collect();
        TakeResponse { decisions: self.decisions, failures: self.failures, receipts, alone: self.alone }
    }

    /// Drops the receipts of a request that spent nothing: a check that would fit has one although another denies.
    pub(crate) fn without_unspent_receipts(mut self) -> Self {
        if !self.is_allowed() {
            self.receipts.clear();
        }
        self
    }

    /// Whether every check that was decided is allowed.
    pub(crate) fn is_allowed(&self) -> bool {
        self.decisions.iter().flatten().all(Decision::is_allowed)
    }

    /// The public form, for callers without a failure policy.
    pub(crate) fn into_together(self) -> Result<Together<R>, TrypemaError> {
        if let Some(failed) = self.failures.into_iter().next() {
            return Err(failed.error);
        }
        let is_allowed = self.decisions.iter().flatten().all(Decision::is_allowed);
        let decisions = self.decisions.into_iter().flatten().collect();
        Ok(Together { is_allowed, decisions, receipts: self.receipts })
    }
}

/// A provider that never fails.
impl<R> From<Together<R>> for TakeResponse<R> {
    fn from(together: Together<R>) -> Self {
        let decisions = together.decisions.into_iter().map(Some).collect();
        Self { decisions, failures: Vec::new(), receipts: together.receipts, alone: Vec::new() }
    }
}

/// The time that one request waits for its store, however many checks and calls it needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    from: Timestamp,
    time: Duration,
}

impl Deadline {
    /// Never passes: for providers that do not wait.
    pub(crate) const NEVER: Self = Self { from: Timestamp::derived(0), time: Duration::MAX };

    /// Passes when `time` has gone by from now.
    pub(crate) fn after(time: Duration) -> Self {
        Self { from: SystemClock.now(), time }
    }

    /// The last moment to wait for an answer.
    pub(crate) fn until(self) -> Timestamp {
        self.from + self.time
    }

    /// The last moment to wait for an answer that others may have to be refunded after: a fifth is kept for that.
    pub(crate) fn before_rollback(self) -> Timestamp {
        self.fifths(4).until()
    }

    /// The deadline of a first step that a second one follows: one server that does not answer must not use up the
    /// time of the others.
    pub(crate) fn of_first_step(self) -> Self {
        self.fifths(2)
    }

    fn fifths(self, count: u32) -> Self {
        Self { time: self.time / 5 * count, ..self }
    }
}
