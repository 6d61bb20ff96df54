//! Single counters, by the names that verdicts tell: looking at them, giving back, forgetting.

use super::{Engine, Provider};
use crate::check::Check;
use crate::error::TrypemaError;
use crate::local::Holds as HoldsHere;
use crate::rules::plan::Plan;
use crate::rules::request::Request;
use crate::rules::verdict::Verdict;
use crate::strategy::with_strategy;

/// What one rule was given back.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refunded {
    /// The rule's id.
    pub rule: String,
    /// The name of its counter.
    pub key: String,
    /// How many units were still counted, and are no more.
    pub units: u64,
}

impl Engine {
    /// Gives the request's cost back to every rule that applies to it, each on its own, the oldest units first: for a request
    /// that cost less than was thought, or came to nothing. Where the whole of one [reservation](Engine::reserve) is to be given back,
    /// [`Engine::refund`] does so exactly, and only once. On Redis this is one call per rule.
    pub async fn give_back(&self, request: &Request<'_>) -> Result<Vec<Refunded>, TrypemaError> {
        let plan = self.plan(request)?;
        let everything = plan.everything();
        let mut refunded = Vec::with_capacity(everything.checks.len());
        for check in &everything.checks {
            let units = self.give_back_to(check).await?;
            let rule = check.key.split('|').next().unwrap_or_default();
            refunded.push(Refunded { rule: rule.to_owned(), key: check.key.to_owned(), units });
        }
        Ok(refunded)
    }

    /// What the counter of this name has, as a verdict over a request that costs nothing; `None` if no rule has such counters. Spends
    /// nothing.
    pub async fn inspect(&self, key: &str) -> Result<Option<Verdict>, TrypemaError> {
        let Some(mut plan) = Plan::of_key(self.set.load_full(), key) else { return Ok(None) };
        let everything = plan.everything();
        let decisions = self.peek(&everything.checks).await?;
        let answers = everything.answers;
        plan.decide(&answers, &decisions);
        Ok(Some(plan.verdict))
    }

    /// Forgets what the counter of this name has counted; whether there was anything. `None` if no rule has such counters.
    pub async fn reset(&self, key: &str) -> Result<Option<bool>, TrypemaError> {
        let Some(plan) = Plan::of_key(self.set.load_full(), key) else { return Ok(None) };
        match plan.everything().checks.first() {
            Some(check) => self.forget(check).await.map(Some),
            // Its key is blocked or let pass by an override, and counts nothing.
            None => Ok(Some(false)),
        }
    }

    async fn give_back_to(&self, check: &Check<'_>) -> Result<u64, TrypemaError> {
        with_strategy!(check.limit, |S, limit| {
            match self.provider {
                Provider::Local => {
                    let limiter = HoldsHere::<S>::limiter(self.limiter.local());
                    Ok(limiter.refund_units(check.key, limit, check.cost))
                }
                #[cfg(feature = "_redis")]
                Provider::Redis => {
                    let key = crate::redis::RedisKey::try_from(check.key)?;
                    let limiter = crate::redis::Holds::<S>::limiter(self.limiter.redis());
                    limiter.refund_units(&key, limit, check.cost).await
                }
                #[cfg(feature = "_redis")]
                Provider::Hybrid => {
                    let key = crate::redis::RedisKey::try_from(check.key)?;
                    let limiter = crate::hybrid::Holds::<S>::limiter(self.limiter.hybrid());
                    limiter.refund_units(&key, limit, check.cost).await
                }
            }
        })
    }

    async fn forget(&self, check: &Check<'_>) -> Result<bool, TrypemaError> {
        with_strategy!(check.limit, |S, _limit| {
            match self.provider {
                Provider::Local => Ok(HoldsHere::<S>::limiter(self.limiter.local()).reset(check.key)),
                #[cfg(feature = "_redis")]
                Provider::Redis => {
                    let key = crate::redis::RedisKey::try_from(check.key)?;
                    crate::redis::Holds::<S>::limiter(self.limiter.redis()).reset(&key).await
                }
                #[cfg(feature = "_redis")]
                Provider::Hybrid => {
                    let key = crate::redis::RedisKey::try_from(check.key)?;
                    crate::hybrid::Holds::<S>::limiter(self.limiter.hybrid()).reset(&key).await
                }
            }
        })
    }
}
