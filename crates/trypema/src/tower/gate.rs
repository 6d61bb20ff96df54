//! Gates: the part of a layer that decides a request, by one limit or by rules.

mod limit;
mod rules;

use std::pin::Pin;
use std::sync::Arc;

use super::incoming::Incoming;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::http::{ErrorCode, Policy, Standing};
use crate::rules::Verdict;

pub(super) use limit::{LimitGate, Place};
pub(super) use rules::{Attribute, RulesGate};

pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One limit or a set of rules.
pub(super) enum Gate {
    Limit(Arc<LimitGate>),
    Rules(Arc<RulesGate>),
}

/// The cost of a request, and the way it is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) cost: u64,
    pub(super) counting: Counting,
    /// Whether responses to admitted requests report the remaining quota.
    pub(super) is_told: bool,
}

/// The time at which a request is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counting {
    /// Before it is admitted.
    Before,
    /// Before it is admitted, with a receipt, so that it can be refunded after the response.
    Reserving,
    /// After the response, if at all. Before, the gate only checks whether the request would be allowed.
    After,
}

/// A decision, or the future of one.
pub(super) enum Asked {
    /// The request is admitted, and no details are needed. This is the fast path.
    Passed,
    Now(Result<Found, Trouble>),
    Later(BoxFuture<Result<Found, Trouble>>),
}

/// A decision, and the work that may follow the response.
pub(super) struct Found {
    pub(super) finding: Finding,
    /// Counts or refunds the request after its response. Only for admitted requests.
    pub(super) afterwards: Option<Afterwards>,
}

/// A decision, and the gate that made it.
pub(super) enum Finding {
    Limit {
        gate: Arc<LimitGate>,
        decision: Decision,
    },
    /// Boxed, because a verdict is larger and rules are used less often.
    Rules(Box<Verdict>),
}

/// The reason why there is no decision.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The request has no key. Contains instructions for the developer.
    NoKey(&'static str),
    /// The store failed, or the request is invalid.
    Failed(TrypemaError),
}

/// Counts a request after its response, or refunds it.
pub(super) type Afterwards = Box<dyn FnOnce() -> Settled + Send>;

/// The result of [`Afterwards`], or the future of it. Contains a newer finding, if there is one.
pub(super) enum Settled {
    Now(Option<Finding>),
    Later(BoxFuture<Option<Finding>>),
}

/// A finding in the form that responses need.
#[derive(Clone, Copy)]
pub(super) enum Told<'a> {
    Limit {
        policy: Policy<'a>,
        standing: &'a Standing,
        /// The error code of a denial by this limit.
        code: ErrorCode,
    },
    Rules(&'a Verdict),
}

impl Gate {
    #[inline]
    pub(super) fn ask(&self, request: &Incoming<'_>, terms: Terms) -> Asked {
        match self {
            Self::Limit(gate) => gate.ask(request, terms),
            Self::Rules(gate) => gate.ask(request, terms),
        }
    }
}

impl<'a> Told<'a> {
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

impl Finding {
    pub(super) fn is_allowed(&self) -> bool {
        match self {
            Self::Limit { decision, .. } => decision.is_allowed(),
            Self::Rules(verdict) => verdict.is_allowed(),
        }
    }

    pub(super) fn told(&self) -> Told<'_> {
        match self {
            Self::Limit { gate, decision } => gate.told(decision),
            Self::Rules(verdict) => Told::Rules(verdict),
        }
    }
}

impl From<Verdict> for Finding {
    fn from(verdict: Verdict) -> Self {
        Self::Rules(Box::new(verdict))
    }
}

impl From<TrypemaError> for Trouble {
    fn from(error: TrypemaError) -> Self {
        Self::Failed(error)
    }
}

impl Found {
    /// Creates a decision with work that follows the response. The work is dropped if the request is denied.
    fn new(finding: impl Into<Finding>, afterwards: impl FnOnce() -> Settled + Send + 'static) -> Self {
        let finding = finding.into();
        let afterwards = finding.is_allowed().then(|| Box::new(afterwards) as Afterwards);
        Self { finding, afterwards }
    }

    /// Creates a decision without any work after the response.
    fn settled(finding: impl Into<Finding>) -> Self {
        Self { finding: finding.into(), afterwards: None }
    }
}
