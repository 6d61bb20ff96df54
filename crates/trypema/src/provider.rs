//! The verbs that rules, middleware and the server call on any provider.
//!
//! A provider takes lists of checks and returns a result for each: a decision, or the failure of the store.
//! It knows nothing about rules. [`failure_policy`] is the layer above it, and decides the failed checks in
//! the same way for every verb.
#![cfg_attr(not(feature = "_redis"), allow(dead_code, reason = "counters in this process never fail"))]

pub(crate) mod failure_policy;

use std::fmt;
use std::pin::Pin;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::check::{Check, CheckResult, Deadline, IfUnreachable, TakeRequest, TakeResponse};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::reservation::{
    HoldersResult, RenewRequest, RenewResult, ReserveRequest, ReserveResponse, SettleRequest, SettleResult,
};
use crate::strategy::RecordedUnits;

/// A store of counters. Only the three providers of this crate implement it.
///
/// An `Err` for a whole call means that its checks are invalid. A failure of the store is the result of
/// each check that it concerns.
pub(crate) trait Provider: fmt::Debug + Send + Sync {
    /// Returns the deadline of a request that starts now.
    fn deadline(&self) -> Deadline;

    /// Whether every verb returns [`MaybeReady::Ready`], because the store is in this process.
    fn is_immediate(&self) -> bool;

    /// Takes all checks of `request.checks`, or none of them. Takes each check of `request.independent`
    /// independently.
    fn take_all<'a>(&'a self, request: TakeRequest<'a>) -> MaybeReady<'a, TakeResult>;

    /// Decides each check independently. Spends nothing.
    fn peek_all<'a>(
        &'a self,
        checks: &'a [Check<'a>],
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<CheckResult>>;

    /// Records each check independently of the others.
    fn record_all<'a>(
        &'a self,
        records: &'a [RecordRequest<'a>],
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<CheckResult>>;

    /// Makes each refund independently. Returns the units that still counted and were refunded, for each.
    fn refund_all<'a>(
        &'a self,
        refunds: &'a [RefundRequest<'a>],
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<RefundResult>>;

    /// Deletes the counter of a check. Returns whether there was one.
    fn reset<'a>(
        &'a self,
        check: Check<'a>,
        deadline: Deadline,
    ) -> MaybeReady<'a, Result<bool, TrypemaError>>;

    /// Reserves all checks of `request.take.checks` under the id of the request, or none of them; each check
    /// of `request.take.independent` independently. A check that is reserved under this id already is
    /// allowed, and spends nothing again.
    ///
    /// Fails with [`TrypemaError::ReservationConflict`] if another request has made a reservation with this
    /// id.
    fn reserve<'a>(
        &'a self,
        request: ReserveRequest<'a>,
    ) -> MaybeReady<'a, Result<ReserveResponse, TrypemaError>>;

    /// Settles the parts of a reservation, each independently.
    fn settle_all<'a>(
        &'a self,
        settlements: &'a [SettleRequest<'a>],
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<SettleResult>>;

    /// Renews the parts of a reservation, each independently.
    fn renew_all<'a>(
        &'a self,
        renewals: &'a [RenewRequest<'a>],
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<RenewResult>>;

    /// Lists the reservations of a counter that are neither settled nor expired.
    fn holders<'a>(&'a self, check: Check<'a>, deadline: Deadline) -> MaybeReady<'a, HoldersResult>;

    /// Returns whether a failed check with this policy stops its request. `None` is the policy that the
    /// limiter was built with.
    fn if_unreachable(&self, _policy: Option<OnStoreFailure>) -> IfUnreachable {
        IfUnreachable::Stop
    }

    /// Decides a check whose store has failed. Returns `None` if the policy is to return the error.
    fn decide_without_store(&self, _fallback: Fallback<'_>) -> Option<Decision> {
        None
    }

    /// Decides a check of a reservation whose store has failed. Returns `None` if the policy is to return the error.
    fn reserve_without_store(
        &self,
        _check: &Check<'_>,
        _policy: Option<OnStoreFailure>,
    ) -> Option<SubstituteReservation> {
        None
    }

    /// Sets the cost of a check that [`reserve_without_store`](Self::reserve_without_store) has charged.
    fn settle_without_store(
        &self,
        _check: &Check<'_>,
        _charged: RecordedUnits,
        _policy: Option<OnStoreFailure>,
    ) {
    }

    /// Refunds units that were counted in this process because the store had failed. Returns `None` if the
    /// policy counts nothing here.
    fn refund_without_store(&self, _check: &Check<'_>, _policy: Option<OnStoreFailure>) -> Option<u64> {
        None
    }
}

/// The result of [`Provider::take_all`].
pub(crate) type TakeResult = Result<TakeResponse<AnyReceipt>, TrypemaError>;

/// The number of units that a refund returned, or the failure of the store.
pub(crate) type RefundResult = Result<u64, TrypemaError>;

/// A result that is available immediately, or a future. A future that is dropped before its first poll has
/// no effect.
pub(crate) enum MaybeReady<'a, T> {
    Ready(T),
    Pending(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T> MaybeReady<'a, T> {
    #[cfg(feature = "_redis")]
    pub(crate) fn pending(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self::Pending(Box::pin(future))
    }

    /// Returns the result if it is available immediately.
    pub(crate) fn ready(self) -> Option<T> {
        match self {
            Self::Ready(answer) => Some(answer),
            Self::Pending(_) => None,
        }
    }

    pub(crate) async fn wait(self) -> T {
        match self {
            Self::Ready(answer) => answer,
            Self::Pending(answer) => answer.await,
        }
    }
}

/// A check to record independently of others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordRequest<'a> {
    pub(crate) check: Check<'a>,
    pub(crate) mode: RecordMode,
}

/// The way in which a check is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordMode {
    /// Spends the cost if it fits, or if the check is postpaid and one unit is free. A denial is recorded as far
    /// as the strategy counts denials.
    Take,
    /// Records the cost even if nothing is left. The decision is allowed, and shows what is left afterwards.
    /// (An abuse limit counts an attempt as usual.)
    Debit,
    /// Spends nothing. Records the observation or denial that the strategy counts when another check denies
    /// the request.
    DeniedElsewhere,
}

/// A refund of one check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefundRequest<'a> {
    pub(crate) check: Check<'a>,
    /// Identifies the take. Without a receipt, the cost of the check is refunded, oldest units first.
    pub(crate) receipt: Option<&'a AnyReceipt>,
}

/// A check to decide because its store has failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fallback<'a> {
    pub(crate) check: Check<'a>,
    pub(crate) verb: CheckVerb,
    /// `None` is the policy that the limiter was built with.
    pub(crate) policy: Option<OnStoreFailure>,
}

/// Whether a decision spends its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckVerb {
    Take,
    Debit,
    Peek,
    /// Spends the cost like a take, for a reservation that this process keeps: the store is not charged for it by
    /// itself.
    Reserve,
}

/// The decision of a failure policy on a reservation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SubstituteReservation {
    pub(crate) decision: Decision,
    /// The units that the counters of this process recorded, if they counted any.
    pub(crate) charged: Option<RecordedUnits>,
}

/// Identifies a take of any provider, so that it can be refunded once.
#[derive(Debug)]
pub(crate) enum AnyReceipt {
    Local(crate::local::LocalReceipt),
    #[cfg(feature = "_redis")]
    Redis(crate::redis::RedisReceipt),
    #[cfg(feature = "_redis")]
    Hybrid(crate::hybrid::HybridReceipt),
    /// The take was counted in this process, because the store had failed.
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
