//! Checks whose units the middleware may refund after the response. The receipts stay in this process, and
//! cost the store nothing unless they are used. All other callers use reservations.

use super::Engine;
use crate::check::{Deadline, Receipts};
use crate::error::TrypemaError;
use crate::provider::{AnyReceipt, RefundRequest, failure_policy};
use crate::rules::plan::Plan;
use crate::rules::request::Request;
use crate::rules::set::RuleSet;
use crate::rules::verdict::Verdict;

/// A verdict with the receipts of its takes, for [`Engine::refund`].
#[derive(Debug)]
pub(crate) struct CheckWithReceipts {
    plan: Plan,
    receipts: Vec<Option<AnyReceipt>>,
}

impl CheckWithReceipts {
    pub(crate) fn verdict(&self) -> &Verdict {
        &self.plan.verdict
    }
}

impl Engine {
    /// The same as [`Engine::check`], with receipts.
    pub(crate) async fn check_with_receipts(
        &self,
        request: &Request<'_>,
    ) -> Result<CheckWithReceipts, TrypemaError> {
        let mut plan = self.plan(request)?;
        let decisions = self.take(&plan, Receipts::Wanted).await?;
        plan.decide(&decisions.outcomes, &decisions.decisions);
        self.report(&plan.verdict);
        Ok(CheckWithReceipts { plan, receipts: decisions.receipts })
    }

    /// Refunds the units that a check spent, except those of log-only rules.
    ///
    /// If the rules were replaced in the meantime, the limits now in force apply. Candidates have no
    /// receipts: they are refunded by number of units, the oldest units first.
    pub(crate) async fn refund(&self, spent: CheckWithReceipts) -> Result<(), TrypemaError> {
        let (set, provider) = (self.set.load_full(), self.provider());
        let (plan, deadline) = (&spent.plan, provider.deadline());
        let enforced = plan.with_limits_of(&set, plan.enforced_checks());
        let spent = enforced.checks.iter().zip(&enforced.outcomes).zip(&spent.receipts);
        let (refunds, outcomes): (Vec<RefundRequest<'_>>, Vec<usize>) = spent
            .filter_map(|((check, outcome), receipt)| {
                Some((RefundRequest { check: *check, receipt: Some(receipt.as_ref()?) }, *outcome))
            })
            .unzip();
        let policy_of = plan.policy_of(&outcomes);
        let refunded = failure_policy::refund_all(provider, &refunds, deadline, &policy_of).await;
        self.refund_candidates(plan, &set, deadline).await;
        refunded.into_iter().try_for_each(|refunded| refunded.map(|_| ()))
    }

    /// Refunds the candidates for a request that was allowed. Failures are ignored: candidates never decide a
    /// request.
    async fn refund_candidates(&self, plan: &Plan, set: &RuleSet, deadline: Deadline) {
        if !plan.has_candidates() || !plan.verdict.is_allowed() {
            return;
        }
        let candidates = plan.with_limits_of(set, plan.candidate_checks());
        let is_spent = |outcome: usize| {
            let decision = plan.verdict.outcomes.get(outcome).and_then(|outcome| outcome.decision);
            decision.is_some_and(|decision| decision.is_allowed())
        };
        let checks = candidates.checks.iter().zip(&candidates.outcomes);
        let refunds: Vec<RefundRequest<'_>> = checks
            .filter(|(_, outcome)| is_spent(**outcome))
            .map(|(check, _)| RefundRequest { check: *check, receipt: None })
            .collect();
        self.provider().each(&refunds, deadline).wait().await;
    }
}
