//! What decides over requests: one limit, or rules.

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

/// What decides.
pub(super) enum Gate {
    Limit(Arc<LimitGate>),
    Rules(Arc<RulesGate>),
}

/// How a request is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) cost: u64,
    pub(super) counting: Counting,
    /// Whether clients that are let in are told what is left.
    pub(super) is_told: bool,
}

/// When a request is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counting {
    /// Before it is let in.
    Before,
    /// Before, and perhaps undone after the response.
    Reserving,
    /// Perhaps after the response; before that it is only looked whether there is room.
    After,
}

/// Whether a decision is there already.
pub(super) enum Asked {
    /// The request is let in, and there is no more to say: the way of most requests, and the shortest.
    Passed,
    Now(Result<Found, Trouble>),
    Later(BoxFuture<Result<Found, Trouble>>),
}

/// What was decided.
pub(super) struct Found {
    pub(super) finding: Finding,
    /// What may have to be done after the response. Only where the request is let in.
    pub(super) afterwards: Option<Afterwards>,
}

/// What was decided, by whom.
pub(super) enum Finding {
    Limit {
        gate: Arc<LimitGate>,
        decision: Decision,
    },
    /// Boxed, as it is the larger one and the rarer.
    Rules(Box<Verdict>),
}

/// Why nothing could be decided.
#[derive(Debug)]
pub(super) enum Trouble {
    /// A request without a key, and what to do about it.
    NoKey(&'static str),
    /// The store could not be asked.
    Failed(TrypemaError),
}

/// Counts a request after the response, or gives back what was counted before.
pub(super) type Afterwards = Box<dyn FnOnce() -> Settled + Send>;

/// Whether what was to be done after a response is done; with a newer finding, where one was made.
pub(super) enum Settled {
    Now(Option<Finding>),
    Later(BoxFuture<Option<Finding>>),
}

/// A finding as clients are told of it.
#[derive(Clone, Copy)]
pub(super) enum Told<'a> {
    Limit {
        policy: Policy<'a>,
        standing: &'a Standing,
        /// What a denial by this limit means.
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
    /// What may keep requests out: rules that only log are nobody's business.
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
    /// A finding, and what may have to be done once a request that was let in has its response.
    fn new(finding: impl Into<Finding>, afterwards: impl FnOnce() -> Settled + Send + 'static) -> Self {
        let finding = finding.into();
        let afterwards = finding.is_allowed().then(|| Box::new(afterwards) as Afterwards);
        Self { finding, afterwards }
    }

    /// A finding that nothing follows from after the response.
    fn settled(finding: impl Into<Finding>) -> Self {
        Self { finding: finding.into(), afterwards: None }
    }
}
