//! Verbs that only the abuse strategy has: `check`, and blocking and unblocking by hand.

use std::time::Duration;

use super::key::RedisKey;
use super::limiter::RedisLimiter;
use super::verb;
use crate::decision::{BlockScope, LimiterDecision};
use crate::error::TrypemaError;
use crate::strategy::{Abuse, AbuseLimit};

impl RedisLimiter<Abuse> {
    /// Records an attempt: a [`take`](RedisLimiter::take) of one unit, with the decision as a
    /// [`LimiterDecision`].
    ///
    /// To count only failed attempts, call [`usage`](RedisLimiter::usage) before an attempt, and `check`
    /// after it has failed. `usage` denies only while the key is blocked.
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
            BlockScope::Temp => 0_u64,
            BlockScope::Long => 1,
        };
        let request = self.request(verb::BLOCK, key, None).spending(scope.into()).lasting(duration);
        self.run_numeric(key, request).await.map(|_| ())
    }

    /// Ends the block of `key` and forgets the attempts that led to it. Returns whether `key` was blocked.
    pub async fn unblock(&self, key: &RedisKey) -> Result<bool, TrypemaError> {
        let request = self.request(verb::UNBLOCK, key, None);
        let was_blocked = self.run_numeric(key, request).await? > 0;
        self.fallback.forget(key);
        Ok(was_blocked)
    }
}
