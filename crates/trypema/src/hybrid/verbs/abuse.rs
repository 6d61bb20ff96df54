//! Verbs that only the abuse strategy has: `check`, and blocking and unblocking by hand.

use std::time::Duration;

use super::limiter::HybridLimiter;
use crate::decision::{BlockScope, LimiterDecision};
use crate::error::TrypemaError;
use crate::redis::RedisKey;
use crate::strategy::{Abuse, AbuseLimit};

impl HybridLimiter<Abuse> {
    /// Records an attempt: a [`take`](HybridLimiter::take) of one unit, with the decision as a
    /// [`LimiterDecision`].
    pub async fn check(&self, key: &RedisKey, limit: &AbuseLimit) -> Result<LimiterDecision, TrypemaError> {
        Ok(LimiterDecision::from(&self.take(key, limit, 1).await?))
    }

    /// Blocks `key` for at least `duration`. A longer block stays in force.
    pub async fn block(
        &self,
        key: &RedisKey,
        duration: Duration,
        scope: BlockScope,
    ) -> Result<(), TrypemaError> {
        self.redis().block(key, duration, scope).await
    }

    /// Ends the block of `key` and forgets its attempts. Returns whether `key` was blocked. Other instances
    /// may remember the block for up to an interval ([`bound`](Self::bound)).
    pub async fn unblock(&self, key: &RedisKey) -> Result<bool, TrypemaError> {
        let was_blocked = self.redis().unblock(key).await;
        self.forget(key);
        was_blocked
    }
}
