//! Verbs that only the abuse strategy has: `check`, and blocking and unblocking by hand.

use std::time::Duration;

use super::ask::Verb;
use super::key::RedisKey;
use super::key_call::Asking;
use super::limiter::Limiter;
use crate::decision::{BlockScope, LimiterDecision};
use crate::error::TrypemaError;
use crate::strategy::{Abuse, AbuseLimit};

impl Limiter<Abuse> {
    /// Records an attempt: a [`take`](Limiter::take) of one unit, with the decision as a
    /// [`LimiterDecision`].
    ///
    /// To count only failed attempts, call [`usage`](Limiter::usage) before an attempt, and `check` after
    /// it has failed. `usage` denies only while the key is blocked.
    pub async fn check(&self, key: &RedisKey, limit: &AbuseLimit) -> Result<LimiterDecision, TrypemaError> {
        Ok(LimiterDecision::from(&self.take(key, limit, 1).await?))
    }

    /// Blocks `key` for at least `duration`, regardless of its attempts.
    pub async fn block(
        &self,
        key: &RedisKey,
        duration: Duration,
        scope: BlockScope,
    ) -> Result<(), TrypemaError> {
        let scope = match scope {
            BlockScope::Temp => 0,
            BlockScope::Long => 1,
        };
        let block_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let asking = Asking { verb: Verb::Block, cost: scope, extra: block_us };
        self.number(key, self.ask(key, None, asking)).await.map(|_| ())
    }

    /// Ends the block of `key` and forgets the attempts that led to it. Returns whether `key` was blocked.
    pub async fn unblock(&self, key: &RedisKey) -> Result<bool, TrypemaError> {
        let ask = self.ask(key, None, Asking::new(Verb::Unblock, 0));
        let was_blocked = self.number(key, ask).await? > 0;
        self.substitute.forget(key);
        Ok(was_blocked)
    }
}
