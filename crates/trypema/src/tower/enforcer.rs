//! The enforcer of a layer: decides a request, by one limit or by rules.

mod limit;
mod rules;

use std::pin::Pin;
use std::sync::Arc;

use super::reservation_handle::ReservationTransfer;
use super::view::RequestView;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::http::{ErrorCode, Policy, StaticHeaders};
use crate::rules::Verdict;

pub(super) use limit::{CounterLocation, LimitEnforcer};
pub(super) use rules::{Attribute, RulesEnforcer, UnitCost};

pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One limit or a set of rules.
pub(super) enum Enforcer {
    Limit(Arc<LimitEnforcer>),
    Rules(Arc<RulesEnforcer>),
}

/// The cost of a request, and the way it is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct CountingOptions {
    pub(super) cost: u64,
    pub(super) count_when: CountWhen,
    /// Whether responses to admitted requests report the remaining quota.
    pub(super) reports_quota: bool,
}

/// The time at which a request is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountWhen {
    /// Before it is admitted.
    Before,
    /// Before it is admitted, with a receipt, so that it can be refunded after the response.
    BeforeWithReceipt,
    /// After the response, if at all. Before, the enforcer only checks whether the request would be allowed.
    After,
}

/// A decision, or the future of one.
pub(super) enum CheckOutcome {
    /// The request is admitted, and no details are needed. This is the fast path.
    Admitted,
    Ready(Result<CheckedRequest, EnforcerError>),
    Pending(BoxFuture<Result<CheckedRequest, EnforcerError>>),
}

/// A decision, and the work that may follow the response.
pub(super) struct CheckedRequest {
    pub(super) decision: LayerDecision,
    /// Counts or refunds the request after its response. Only for admitted requests.
    pub(super) after_response: Option<AfterResponse>,
    /// The reservation of an admitted request, if the layer reserves.
    pub(super) reservation: Option<ReservationTransfer>,
}

/// A decision of a layer, with the data that responses need.
pub(super) enum LayerDecision {
    Limit {
        enforcer: Arc<LimitEnforcer>,
        decision: Decision,
    },
    /// Boxed, because a verdict is larger and rules are used less often.
    Rules(Box<Verdict>),
}

/// The reason why there is no decision.
#[derive(Debug)]
pub(super) enum EnforcerError {
    /// The request has no key. Contains instructions for the developer.
    MissingKey(&'static str),
    /// The store failed, or the request is invalid.
    Failed(TrypemaError),
}

/// Counts a request after its response, or refunds it.
pub(super) type AfterResponse = Box<dyn FnOnce() -> AfterResponseResult + Send>;

/// The result of [`AfterResponse`], or the future of it. Contains a newer decision, if there is one.
pub(super) enum AfterResponseResult {
    Ready(Option<LayerDecision>),
    Pending(BoxFuture<Option<LayerDecision>>),
}

/// A decision in the form that responses need.
#[derive(Clone, Copy)]
pub(super) enum DecisionReport<'a> {
    Limit {
        policy: Policy<'a>,
        static_headers: &'a StaticHeaders,
        /// The error code of a denial by this limit.
        code: ErrorCode,
    },
    Rules(&'a Verdict),
}

impl Enforcer {
    #[inline]
    pub(super) fn check(&self, request: &RequestView<'_>, options: CountingOptions) -> CheckOutcome {
        match self {
            Self::Limit(enforcer) => enforcer.check(request, options),
            Self::Rules(enforcer) => enforcer.check(request, options),
        }
    }
}

impl<'a> DecisionReport<'a> {
    /// Returns the limits that can deny requests. Shadow rules are not reported to clients.
    pub(super) fn policies(self) -> impl Iterator<Item = Policy<'a>> {
        let (one, verdict) = match self {
            Self::Limit { policy, .. } => (Some(policy), None),
            Self::Rules(verdict) => (None, Some(verdict)),
        };
        let rules = verdict.into_iter().flat_map(Policy::of_rules);
        one.into_iter().chain(rules)
    }
}

impl LayerDecision {
    pub(super) fn is_allowed(&self) -> bool {
        match self {
            Self::Limit { decision, .. } => decision.is_allowed(),
            Self::Rules(verdict) => verdict.is_allowed(),
        }
    }

    pub(super) fn report(&self) -> DecisionReport<'_> {
        match self {
            Self::Limit { enforcer, decision } => enforcer.report(decision),
            Self::Rules(verdict) => DecisionReport::Rules(verdict),
        }
    }
}

impl From<Verdict> for LayerDecision {
    fn from(verdict: Verdict) -> Self {
        Self::Rules(Box::new(verdict))
    }
}

impl From<TrypemaError> for EnforcerError {
    fn from(error: TrypemaError) -> Self {
        Self::Failed(error)
    }
}

impl CheckedRequest {
    /// Creates a decision with work that follows the response. The work is dropped if the request is denied.
    fn new(
        decision: impl Into<LayerDecision>,
        after_response: impl FnOnce() -> AfterResponseResult + Send + 'static,
    ) -> Self {
        let decision = decision.into();
        let after_response = decision.is_allowed().then(|| Box::new(after_response) as AfterResponse);
        Self { decision, after_response, reservation: None }
    }

    /// Creates a decision without any work after the response.
    fn without_follow_up(decision: impl Into<LayerDecision>) -> Self {
        Self { decision: decision.into(), after_response: None, reservation: None }
    }
}
