//! Candidates: rules that are tried alongside the live rules that they may replace.
//!
//! A candidate is evaluated as if it replaced its live rule. If another enforced rule denies the request, the
//! candidate spends nothing, exactly as its live rule would in an all-or-nothing check. It then counts only
//! what its strategy counts for denied requests.

use super::{Decided, Engine};
use crate::check::Deadline;
use crate::decision::Decision;
use crate::provider::{RecordMode, RecordRequest, RefundRequest};
use crate::rules::plan::Plan;
use crate::rules::set::RuleSet;
use crate::rules::verdict::Denying;

/// The checks of the candidates, made after the other rules have decided the request.
#[derive(Debug, Default)]
pub(super) struct Candidates<'p> {
    pub(super) records: Vec<RecordRequest<'p>>,
    pub(super) answers: Vec<usize>,
}

impl Engine {
    /// Refunds the candidates for a request that was allowed. Failures are ignored: candidates never decide a
    /// request.
    pub(super) async fn refund_candidates(&self, plan: &Plan, set: &RuleSet, deadline: Deadline) {
        if !plan.has_candidates() || !plan.verdict.is_allowed() {
            return;
        }
        let candidates = plan.under(set, plan.candidates());
        let is_spent = |answer: usize| {
            let decision = plan.verdict.answers.get(answer).and_then(|answer| answer.decision);
            decision.is_some_and(|decision| decision.is_allowed())
        };
        let checks = candidates.checks.iter().zip(&candidates.answers);
        let refunds: Vec<RefundRequest<'_>> = checks
            .filter(|(_, answer)| is_spent(**answer))
            .map(|(check, _)| RefundRequest { check: *check, receipt: None })
            .collect();
        self.provider().refund_all(&refunds, deadline).wait().await;
    }
}

impl Plan {
    /// Returns the checks of the candidates, and for each one whether it spends its cost or only observes the
    /// request.
    pub(super) fn candidates_after(&self, decided: &Decided) -> Candidates<'_> {
        if !self.has_candidates() {
            return Candidates::default();
        }
        let (candidates, denying) = (self.candidates(), decided.denying(self));
        let record = |(check, answer): (&_, &usize)| {
            let mode = match self.is_overruled(*answer, denying) {
                true => RecordMode::DeniedElsewhere,
                false => RecordMode::Take,
            };
            RecordRequest { check: *check, mode }
        };
        let records = candidates.checks.iter().zip(&candidates.answers).map(record).collect();
        Candidates { records, answers: candidates.answers }
    }

    /// Whether the request is denied by an enforced rule other than the live rule of the candidate at
    /// `answer`.
    fn is_overruled(&self, answer: usize, denying: Denying) -> bool {
        let set = &self.verdict.set;
        let candidate = self.verdict.answers.get(answer).and_then(|answer| set.at(answer.rule));
        let place = candidate.and_then(|candidate| set.place_of(candidate));
        place.is_some_and(|live| denying.is_by_other_than(live))
    }
}

impl Decided {
    /// The enforced rules that deny the request: those with a fixed denial, and those that the decisions so
    /// far deny.
    fn denying(&self, plan: &Plan) -> Denying {
        let answers = &plan.verdict.answers;
        let blocked = answers.iter().filter(|answer| answer.is_blocked);
        let is_denied = |decision: &Option<Decision>| decision.is_some_and(|decision| !decision.is_allowed());
        let denied = self.answers.iter().zip(&self.decisions).filter(|(_, decision)| is_denied(decision));
        let denied = denied.filter_map(|(answer, _)| answers.get(*answer));
        let is_enforced = |rule: &u32| plan.verdict.set.at(*rule).is_some_and(|rule| !rule.rule.is_shadow());
        Denying::of(blocked.chain(denied).map(|answer| answer.rule).filter(is_enforced))
    }
}
