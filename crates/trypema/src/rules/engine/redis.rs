//! Asking rules whose counters are in Redis.

use super::{Decided, Engine, Mode, Receipts};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::redis::{Errand, OnFailure};
use crate::rules::definition::OnStoreFailure;
use crate::rules::plan::Plan;

impl Engine {
    /// Asks Redis for all checks of a plan; where it gives no answer, each rule says what that means.
    pub(super) async fn decide_on_redis(&self, plan: &Plan, mode: Mode) -> Result<Decided, TrypemaError> {
        match self.ask_redis(plan, mode).await {
            Err(error @ TrypemaError::RedisError(_)) => self.decide_without(plan, mode).ok_or(error),
            decided => decided,
        }
    }

    async fn ask_redis(&self, plan: &Plan, mode: Mode) -> Result<Decided, TrypemaError> {
        let (redis, together, alone) = (self.limiter.redis(), plan.together_in(mode), plan.alone_in(mode));
        let mut answers = together.answers.clone();
        if mode == Mode::Look {
            let mut looked = together.looking().checks;
            looked.extend(alone.checks);
            answers.extend(alone.answers);
            let decisions = redis.peek_all(&looked).await?.decisions;
            return Ok(Decided { answers, decisions, receipts: Receipts::Redis(Vec::new()) });
        }
        let substitute = |index: usize| {
            let (check, answer) = (together.checks.get(index)?, together.answers.get(index)?);
            redis.take_without(check, on_failure(plan, *answer))
        };
        let done = redis
            .run(Errand {
                together: &together.checks,
                alone: &alone.checks,
                is_giving_receipts: mode == Mode::Reserve,
                substitute: Some(&substitute),
            })
            .await?;
        let mut decisions = done.together.decisions;
        for (answer, decision) in alone.answers.into_iter().zip(done.alone) {
            if let Some(decision) = decision {
                answers.push(answer);
                decisions.push(decision);
            }
        }
        let decided = Decided { answers, decisions, receipts: Receipts::Redis(done.together.receipts) };
        self.give_back_overruled(plan, mode, &decided).await;
        Ok(decided)
    }

    /// What the rules answer in place of Redis, all or nothing; `None` if one of them leaves it undecided. Those that only
    /// log are left out.
    fn decide_without(&self, plan: &Plan, mode: Mode) -> Option<Decided> {
        let (redis, together) = (self.limiter.redis(), plan.together());
        let together = if mode == Mode::Look { together.looking() } else { together };
        let checks = || together.checks.iter().zip(&together.answers);
        let foreseen: Option<Vec<Decision>> =
            checks().map(|(check, answer)| redis.peek_without(check, on_failure(plan, *answer))).collect();
        let foreseen = foreseen?;
        let is_allowed = foreseen.iter().all(Decision::is_allowed);
        let decisions = match mode {
            Mode::Look => foreseen,
            Mode::Take | Mode::Reserve if !is_allowed => foreseen,
            Mode::Take | Mode::Reserve | Mode::Record => {
                let taken =
                    checks().map(|(check, answer)| redis.take_without(check, on_failure(plan, *answer)));
                taken.collect::<Option<_>>()?
            }
        };
        Some(Decided { answers: together.answers, decisions, receipts: Receipts::Redis(Vec::new()) })
    }
}

/// What it means to the rule of an answer that Redis cannot be asked, if it says.
pub(super) fn on_failure(plan: &Plan, answer: usize) -> Option<OnFailure> {
    plan.on_store_failure(answer).map(|chosen| match chosen {
        OnStoreFailure::Error => OnFailure::Fail,
        OnStoreFailure::Allow => OnFailure::Allow,
        OnStoreFailure::Deny => OnFailure::Deny,
    })
}
