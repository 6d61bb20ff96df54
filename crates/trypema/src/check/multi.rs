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
    /// One entry per check of `together`. `None` for a failed check, and for one that nobody was asked about because
    /// another check was denied first.
    pub(crate) decisions: Vec<Option<Decision>>,
    /// The checks of `together` whose store failed.
    pub(crate) failures: Vec<Failed>,
    /// Receipts of what was spent, in the order of `together`. Empty unless they were wanted or a check failed.
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
        Ok(Together { is_allowed, decisions, receipts: if is_allowed { self.receipts } else { Vec::new() } })
    }
}

/// A provider that never fails.
impl<R> From<Together<R>> for TakeResponse<R> {
    fn from(together: Together<R>) -> Self {
        let decisions = together.decisions.into_iter().map(Some).collect();
        Self { decisions, failures: Vec::new(), receipts: together.receipts, alone: Vec::new() }
    }
}

/// The moment until which one request waits for its store, however many checks and calls it needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    until: Timestamp,
    before_rollback: Timestamp,
}

/// The part of the time that is kept for a rollback: one round trip to servers that have just answered.
const ROLLBACK_SHARE: u32 = 5;

impl Deadline {
    /// Never passes: for providers that wait for nobody.
    pub(crate) const NEVER: Self =
        Self { until: Timestamp::derived(u64::MAX), before_rollback: Timestamp::derived(u64::MAX) };

    /// Passes when `time` has gone by from now.
    pub(crate) fn after(time: Duration) -> Self {
        let now = SystemClock.now();
        Self { until: now + time, before_rollback: now + (time - time / ROLLBACK_SHARE) }
    }

    /// The last moment to wait for an answer.
    pub(crate) fn until(self) -> Timestamp {
        self.until
    }

    /// A deadline that leaves time for a rollback of what was taken before it.
    pub(crate) fn shortened(self) -> Self {
        Self { until: self.before_rollback, ..self }
    }

    /// The last moment to wait for an answer after which others may have to be refunded: leaves time for that.
    pub(crate) fn before_rollback(self) -> Timestamp {
        self.before_rollback
    }
}
