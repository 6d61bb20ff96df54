//! Rules that are asked on their own: those that only log, and candidates.
//!
//! A candidate is asked as if it stood in the place of its live rule. So where any other rule denies a request, it is told no more
//! than that rule would be if it were in force: nothing is spent, and only what its strategy counts of denials is counted.

use super::{Decided, Engine, Mode};
use crate::check::Check;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::rules::plan::Plan;
use crate::rules::set::RuleSet;
use crate::rules::verdict::Denying;
use crate::strategy::Limit;

impl Engine {
    /// Asks the rules that are asked on their own, in this process, after the others were decided.
    pub(super) fn ask_alone_here(
        &self,
        plan: &Plan,
        mode: Mode,
        decided: &mut Decided,
    ) -> Result<(), TrypemaError> {
        let (local, alone) = (self.limiter.local(), plan.alone_in(mode));
        if alone.checks.is_empty() {
            return Ok(());
        }
        let denying = decided.denying(plan);
        for (check, answer) in alone.checks.iter().zip(&alone.answers) {
            let one = std::slice::from_ref(check);
            if mode == Mode::Look {
                decided.decisions.extend(local.peek_all(one)?.decisions);
            } else if plan.is_overruled(*answer, mode, denying) {
                decided.decisions.extend(self.forgo_here(one)?);
            } else {
                decided.decisions.extend(local.take_all(one)?.decisions);
            }
        }
        decided.answers.extend(alone.answers);
        Ok(())
    }

    /// What a candidate would have decided of a request that another rule denies.
    fn forgo_here(&self, check: &[Check<'_>]) -> Result<Vec<Decision>, TrypemaError> {
        let local = self.limiter.local();
        let peeked = local.peek_all(check)?;
        if !peeked.is_allowed {
            return Ok(local.take_all(check)?.decisions);
        }
        if check.iter().any(is_observing) {
            let reserved = local.reserve_all(check)?;
            local.refund_all(check, &reserved.receipts);
        }
        Ok(peeked.decisions)
    }

    /// The same where counters are leased; what a strategy would observe of it is not counted.
    #[cfg(feature = "_redis")]
    pub(super) async fn forgo_leased(&self, check: &Check<'_>) -> Result<Decision, TrypemaError> {
        let hybrid = self.limiter.hybrid();
        let peeked = hybrid.peek_one(check).await?;
        if peeked.is_allowed() { Ok(peeked) } else { hybrid.take_one(check).await }
    }

    /// The same in Redis, where everything is asked in one call: what candidates spent on a request that another rule denied is
    /// given back after it. That this may fail is nobody's matter.
    #[cfg(feature = "_redis")]
    pub(super) async fn give_back_overruled(&self, plan: &Plan, mode: Mode, decided: &Decided) {
        let denying = decided.denying(plan);
        if denying == Denying::Nobody {
            return;
        }
        let candidates = plan.candidates();
        for (check, answer) in candidates.checks.iter().zip(&candidates.answers) {
            if plan.is_overruled(*answer, mode, denying) && decided.is_admitted(*answer) {
                let _ = self.give_back_to(check).await;
            }
        }
    }

    /// Gives back what candidates spent on a request that was let pass. That this may fail is nobody's matter.
    pub(super) async fn give_back_candidates(&self, plan: &Plan, set: &RuleSet) {
        let candidates = plan.candidates();
        if candidates.checks.is_empty() || !plan.verdict.is_allowed() {
            return;
        }
        let candidates = plan.under(set, candidates);
        for (check, answer) in candidates.checks.iter().zip(&candidates.answers) {
            let decision = plan.verdict.answers.get(*answer).and_then(|answer| answer.decision);
            if decision.is_some_and(|decision| decision.is_allowed()) {
                let _ = self.give_back_to(check).await;
            }
        }
    }
}

/// Whether its strategy counts requests that other rules deny.
fn is_observing(check: &Check<'_>) -> bool {
    matches!(check.limit, Limit::Suppressed(_))
}

impl Plan {
    /// Whether an answer is that of a candidate whose request is denied by another rule than its own.
    pub(super) fn is_overruled(&self, answer: usize, mode: Mode, denying: Denying) -> bool {
        let is_spending = matches!(mode, Mode::Take | Mode::Reserve);
        let set = &self.verdict.set;
        let candidate = self.verdict.answers.get(answer).and_then(|answer| set.at(answer.rule));
        let place = candidate.and_then(|candidate| set.place_of(candidate));
        is_spending && place.is_some_and(|live| denying.is_by_other_than(live))
    }
}

impl Decided {
    /// The rules that deny the request: whatever their counters say, or by what was decided so far.
    pub(super) fn denying(&self, plan: &Plan) -> Denying {
        let answers = &plan.verdict.answers;
        let blocked = answers.iter().filter(|answer| answer.is_blocked);
        let denied = self.answers.iter().zip(&self.decisions).filter(|(_, decision)| !decision.is_allowed());
        let denied = denied.filter_map(|(answer, _)| answers.get(*answer));
        let is_enforced = |rule: &u32| plan.verdict.set.at(*rule).is_some_and(|rule| !rule.rule.is_shadow());
        Denying::of(blocked.chain(denied).map(|answer| answer.rule).filter(is_enforced))
    }

    #[cfg(feature = "_redis")]
    fn is_admitted(&self, answer: usize) -> bool {
        let mut decided = self.answers.iter().zip(&self.decisions);
        decided.any(|(index, decision)| *index == answer && decision.is_allowed())
    }
}
