//! Candidates: rules that are tried alongside the live rules that they may replace.
//!
//! A candidate is evaluated as if it replaced its live rule. If another enforced rule denies the request, the
//! candidate spends nothing, exactly as its live rule would in an all-or-nothing check. It then records the
//! request only if its strategy counts denied requests.

use super::PlanDecisions;
use crate::check::{Check, DecideRequest};
use crate::decision::Decision;
use crate::rules::plan::Plan;
use crate::rules::verdict::DenyingRules;
use crate::strategy::Effect;

/// The checks of the candidates, made after the other rules have decided the request.
#[derive(Debug, Default)]
pub(super) struct Candidates<'p> {
    pub(super) requests: Vec<DecideRequest<'p>>,
    pub(super) outcomes: Vec<usize>,
}

impl Plan {
    /// Returns the checks of the candidates, and for each one whether it spends its cost or only observes the
    /// request.
    pub(super) fn candidate_requests<'p>(&'p self, decisions: &PlanDecisions) -> Candidates<'p> {
        if !self.has_candidates() {
            return Candidates::default();
        }
        let (candidates, denying) = (self.candidate_checks(), decisions.denying(self));
        let request = |(check, outcome): (&Check<'p>, &usize)| {
            let effect = match self.is_overruled(*outcome, denying) {
                true => Effect::DeniedElsewhere,
                false => Effect::Take,
            };
            DecideRequest::new(effect, *check)
        };
        let requests = candidates.checks.iter().zip(&candidates.outcomes).map(request).collect();
        Candidates { requests, outcomes: candidates.outcomes }
    }

    /// Returns the outcomes of rules that allow a request and are not charged for it, because another rule denies it.
    pub(super) fn uncharged_by(&self, decisions: &PlanDecisions) -> Vec<usize> {
        let denying = decisions.denying(self);
        if denying == DenyingRules::None {
            return Vec::new();
        }
        let is_uncharged = |outcome: usize| {
            let rule =
                self.verdict.outcomes.get(outcome).and_then(|outcome| self.verdict.set.at(outcome.rule));
            let is_candidate = rule.is_some_and(|rule| self.verdict.set.live_rule_in_force(rule).is_some());
            match is_candidate {
                true => self.is_overruled(outcome, denying),
                false => !self.is_shadow(outcome),
            }
        };
        let allowed = decisions.outcomes.iter().zip(&decisions.decisions);
        let allowed = allowed.filter(|(_, decision)| decision.is_some_and(|decision| decision.is_allowed()));
        allowed.map(|(outcome, _)| *outcome).filter(|outcome| is_uncharged(*outcome)).collect()
    }

    /// Whether the request is denied by an enforced rule other than the live rule of the candidate at
    /// `outcome`.
    fn is_overruled(&self, outcome: usize, denying: DenyingRules) -> bool {
        let set = &self.verdict.set;
        let candidate = self.verdict.outcomes.get(outcome).and_then(|outcome| set.at(outcome.rule));
        let live = candidate.and_then(|candidate| set.live_rule_in_force(candidate));
        live.is_some_and(|live| denying.is_denied_without(live))
    }
}

impl PlanDecisions {
    /// The enforced rules that deny the request: those with a fixed denial, and those that the decisions so
    /// far deny.
    fn denying(&self, plan: &Plan) -> DenyingRules {
        let outcomes = &plan.verdict.outcomes;
        let blocked = outcomes.iter().filter(|outcome| outcome.is_blocked);
        let is_denied = |decision: &Option<Decision>| decision.is_some_and(|decision| !decision.is_allowed());
        let denied = self.outcomes.iter().zip(&self.decisions).filter(|(_, decision)| is_denied(decision));
        let denied = denied.filter_map(|(outcome, _)| outcomes.get(*outcome));
        let is_enforced = |rule: &u32| plan.verdict.set.at(*rule).is_some_and(|rule| !rule.rule.is_shadow());
        DenyingRules::of(blocked.chain(denied).map(|outcome| outcome.rule).filter(is_enforced))
    }
}
