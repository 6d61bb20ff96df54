//! Asking rules whose counters are in Redis.

use super::{Decided, Engine, Mode, Receipts};
use crate::error::TrypemaError;
use crate::redis::{Errand, OnFailure};
use crate::rules::definition::OnStoreFailure;
use crate::rules::plan::Plan;

impl Engine {
    /// Asks Redis for all checks of a plan; where it gives no answer, each rule says what that means.
    pub(super) async fn decide_on_redis(&self, plan: &Plan, mode: Mode) -> Result<Decided, TrypemaError> {
        match self.ask_redis(plan, mode).await {
            Err(error @ TrypemaError::RedisError(_)) => self.substitute(plan).ok_or(error),
            decided => decided,
        }
    }

    async fn ask_redis(&self, plan: &Plan, mode: Mode) -> Result<Decided, TrypemaError> {
        let (redis, together, alone) = (self.limiter.redis(), plan.together(), plan.alone());
        let (mut decisions, receipts) = match mode {
            Mode::Look => {
                let mut looked = together.clone().looking().checks;
                looked.extend(alone.checks);
                (redis.peek_all(&looked).await?.decisions, Vec::new())
            }
            Mode::Take | Mode::Reserve => {
                let is_giving_receipts = mode == Mode::Reserve;
                let errand = Errand { together: &together.checks, alone: &alone.checks, is_giving_receipts };
                let done = redis.run(errand).await?;
                let mut decisions = done.together.decisions;
                decisions.extend(done.alone);
                (decisions, done.together.receipts)
            }
        };
        let mut answers = together.answers;
        answers.extend(alone.answers);
        decisions.truncate(answers.len());
        Ok(Decided { answers, decisions, receipts: Receipts::Redis(receipts) })
    }

    /// What the rules answer in place of Redis; `None` if one of them leaves it undecided. Those that only log are left
    /// out.
    fn substitute(&self, plan: &Plan) -> Option<Decided> {
        let together = plan.together();
        let on_failure = |index: usize| {
            let answer = together.answers.get(index)?;
            plan.on_store_failure(*answer).map(|chosen| match chosen {
                OnStoreFailure::Error => OnFailure::Fail,
                OnStoreFailure::Allow => OnFailure::Allow,
                OnStoreFailure::Deny => OnFailure::Deny,
            })
        };
        let decisions = self.limiter.redis().substitute(&together.checks, &on_failure)?;
        Some(Decided { answers: together.answers, decisions, receipts: Receipts::Redis(Vec::new()) })
    }
}
