//! What only the abuse strategy has: its document's words, and blocks by hand.

use std::time::Duration;

use super::ask::Verb;
use super::key::RedisKey;
use super::key_call::Asking;
use super::limiter::Limiter;
use crate::decision::{BlockScope, LimiterDecision};
use crate::error::TrypemaError;
use crate::strategy::{Abuse, AbuseLimit};

impl Limiter<Abuse> {
    /// Records an attempt, in the words of the abuse limiter's document.
    ///
    /// To count failures only, look at the [`usage`](Limiter::usage) before the attempt, which only a block
    /// denies, and `check` after it failed.
    pub async fn check(&self, key: &RedisKey, limit: &AbuseLimit) -> Result<LimiterDecision, TrypemaError> {
        Ok(LimiterDecision::from(&self.take(key, limit, 1).await?))
    }

    /// Blocks `key` for at least `duration`, whatever it has done.
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

    /// Ends a block and forgets the attempts that led to it; whether `key` was blocked.
    pub async fn unblock(&self, key: &RedisKey) -> Result<bool, TrypemaError> {
        let ask = self.ask(key, None, Asking::new(Verb::Unblock, 0));
        let was_blocked = self.number(key, ask).await? > 0;
        self.substitute.forget(key);
        Ok(was_blocked)
    }
}
