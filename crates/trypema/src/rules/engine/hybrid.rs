//! Asking rules whose counters are shared through Redis and leased.

use super::redis::on_failure;
use super::{Decided, Engine, Mode, Receipts};
use crate::error::TrypemaError;
use crate::hybrid::{Keeping, Spent};
use crate::rules::plan::{Checks, Plan};

impl Engine {
    /// Decides a plan by leases; `None` if Redis has to be asked.
    pub(super) fn decide_leased(&self, plan: &Plan, mode: Mode) -> Option<Result<Decided, TrypemaError>> {
        let is_spending = matches!(mode, Mode::Take | Mode::Reserve);
        if !is_spending || !plan.alone_in(mode).checks.is_empty() {
            return None;
        }
        let together = plan.together_in(mode);
        let spent = self.limiter.hybrid().try_run(&together.checks)?;
        Some(spent.map(|spent| Decided::spent(&together, spent)))
    }

    /// Decides a plan by leases where there are some, and in Redis where there are none; where that gives no answer, each
    /// rule says what it means.
    pub(super) async fn decide_on_hybrid(&self, plan: &Plan, mode: Mode) -> Result<Decided, TrypemaError> {
        let (hybrid, together, alone) = (self.limiter.hybrid(), plan.together_in(mode), plan.alone_in(mode));
        if mode == Mode::Look {
            let mut looked = together.looking();
            looked.checks.extend(alone.checks);
            looked.answers.extend(alone.answers);
            let decisions = hybrid.peek_all(&looked.checks).await?.decisions;
            return Ok(Decided {
                answers: looked.answers,
                decisions,
                receipts: Receipts::Hybrid(Vec::new()),
            });
        }
        let meaning = |index: usize| on_failure(plan, *together.answers.get(index)?);
        let keeping = if mode == Mode::Reserve { Keeping::Receipts } else { Keeping::Nothing };
        let spent = hybrid.run(&together.checks, keeping, &meaning).await?;
        let mut decided = Decided::spent(&together, spent);
        let denying = decided.denying(plan);
        for (answer, check) in alone.answers.into_iter().zip(&alone.checks) {
            let taken = if plan.is_overruled(answer, mode, denying) {
                self.forgo_leased(check).await
            } else {
                hybrid.take_one(check).await
            };
            // A rule that only logs, or counts on its own, is nobody else's matter.
            if let Ok(decision) = taken {
                decided.answers.push(answer);
                decided.decisions.push(decision);
            }
        }
        Ok(decided)
    }
}

impl Decided {
    /// What was asked for; of a request that was denied without asking, some rules have no decision.
    fn spent(together: &Checks<'_>, spent: Spent) -> Self {
        let told = together.answers.iter().zip(spent.decisions);
        let (answers, decisions) = told.filter_map(|(answer, decision)| Some((*answer, decision?))).unzip();
        Self { answers, decisions, receipts: Receipts::Hybrid(spent.receipts) }
    }
}
