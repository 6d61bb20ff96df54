//! The verbs that rules, middleware and the service ask of any provider.
//!
//! A provider takes lists of checks and returns a result for each one: a decision, or the failure of the store. It knows
//! nothing of rules. [`failure_policy`] stands above it and decides the checks that failed, the same way for every verb.
#![cfg_attr(not(feature = "_redis"), allow(dead_code, reason = "counters in this process never fail"))]

pub(crate) mod failure_policy;

use std::fmt;
use std::pin::Pin;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::check::{Check, CheckResult, Deadline, IfUnreachable, TakeRequest, TakeResponse};
use crate::decision::Decision;
use crate::error::TrypemaError;

/// A place where counters live. Implemented by the three providers of this crate, and by nobody else.
///
/// An `Err` for a whole call means that its checks are invalid; a store that fails is a result of each check it concerns.
pub(crate) trait Provider: fmt::Debug + Send + Sync {
    /// The deadline of a request that starts now.
    fn deadline(&self) -> Deadline;

    /// Whether every verb is answered without waiting.
    fn is_immediate(&self) -> bool;

    /// Takes the checks, all or nothing.
    fn take_all<'a>(&'a self, request: TakeRequest<'a>) -> Answer<'a, Taken>;

    /// Decides each check on its own; spends nothing.
    fn peek_all<'a>(&'a self, checks: &'a [Check<'a>], deadline: Deadline) -> Answer<'a, Vec<CheckResult>>;

    /// Counts each check on its own, whatever the others decide.
    fn record_all<'a>(
        &'a self,
        records: &'a [Record<'a>],
        deadline: Deadline,
    ) -> Answer<'a, Vec<CheckResult>>;

    /// Refunds each on its own; the units that were still counted.
    fn refund_all<'a>(&'a self, refunds: &'a [Refund<'a>], deadline: Deadline) -> Answer<'a, Vec<Refunded>>;

    /// Forgets the counter of a check; whether there was anything to forget.
    fn reset<'a>(&'a self, check: Check<'a>, deadline: Deadline) -> Answer<'a, Result<bool, TrypemaError>>;

    /// Whether a failed check with this policy stops a request. `None` is the policy the limiter was built with.
    fn if_unreachable(&self, _policy: Option<OnStoreFailure>) -> IfUnreachable {
        IfUnreachable::Stop
    }

    /// Decides a check in place of a store that failed; `None` if the policy is to fail.
    fn decide_without_store(&self, _fallback: Fallback<'_>) -> Option<Decision> {
        None
    }

    /// Refunds a check that was counted in place of the store; `None` if none was, or the policy counts nothing.
    fn refund_without_store(&self, _check: &Check<'_>, _policy: Option<OnStoreFailure>) -> Option<u64> {
        None
    }
}

/// The result of [`Provider::take_all`].
pub(crate) type Taken = Result<TakeResponse<Receipt>, TrypemaError>;

/// The units that a refund gave back, or the failure of the store.
pub(crate) type Refunded = Result<u64, TrypemaError>;

/// An answer that is there already, or one to wait for. Dropping the latter before it is polled does nothing.
pub(crate) enum Answer<'a, T> {
    Now(T),
    Later(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T> Answer<'a, T> {
    #[cfg(feature = "_redis")]
    pub(crate) fn later(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self::Later(Box::pin(future))
    }

    /// The answer, if it is there already.
    pub(crate) fn now(self) -> Option<T> {
        match self {
            Self::Now(answer) => Some(answer),
            Self::Later(_) => None,
        }
    }

    pub(crate) async fn wait(self) -> T {
        match self {
            Self::Now(answer) => answer,
            Self::Later(answer) => answer.await,
        }
    }
}

/// A check to count on its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) check: Check<'a>,
    pub(crate) counting: Counting,
}

/// The part of a check that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counting {
    /// Its cost, if it fits, and whatever its strategy counts of denials.
    Take,
    /// Only what its strategy counts of requests that others deny: nothing is spent.
    Forgo,
}

/// Units to give back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refund<'a> {
    pub(crate) check: Check<'a>,
    /// Names the take; without one, the cost of the check is refunded, the oldest units first.
    pub(crate) receipt: Option<&'a Receipt>,
}

/// A check to decide in place of a store that failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fallback<'a> {
    pub(crate) check: Check<'a>,
    pub(crate) spending: Spending,
    /// `None` is the policy the limiter was built with.
    pub(crate) policy: Option<OnStoreFailure>,
}

/// Whether a decision spends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spending {
    Take,
    Peek,
}

/// Names a take of any provider, so that it can be refunded once.
#[derive(Debug)]
pub(crate) enum Receipt {
    Local(crate::local::Receipt),
    #[cfg(feature = "_redis")]
    Redis(crate::redis::Receipt),
    #[cfg(feature = "_redis")]
    Hybrid(crate::hybrid::Receipt),
    /// The take was counted in place of a store that failed.
    Fallback,
}

/// The failure policy of one rule, in place of the one the limiter was built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreFailure {
    /// The request ends with an error.
    Error,
    /// The rule lets the request pass.
    Allow,
    /// The rule denies the request, and says why.
    Deny,
}
