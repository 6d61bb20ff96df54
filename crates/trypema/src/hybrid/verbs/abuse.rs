//! What only the abuse strategy has: its document's words, and blocks by hand.

use std::time::Duration;

use super::limiter::Limiter;
use crate::decision::{BlockScope, LimiterDecision};
use crate::error::TrypemaError;
use crate::redis::RedisKey;
use crate::strategy::{Abuse, AbuseLimit};

impl Limiter<Abuse> {
    /// Records an attempt and says whether it is allowed.
    pub async fn check(&self, key: &RedisKey, limit: &AbuseLimit) -> Result<LimiterDecision, TrypemaError> {
        Ok(LimiterDecision::from(&self.take(key, limit, 1).await?))
    }

    /// Blocks `key` for `duration`, or longer if it is blocked longer already.
    pub async fn block(
        &self,
        key: &RedisKey,
        duration: Duration,
        scope: BlockScope,
    ) -> Result<(), TrypemaError> {
        self.redis().block(key, duration, scope).await
    }

    /// Ends a block and forgets all attempts; whether there was a block. Other instances remember it for an interval at
    /// most ([`bound`](Self::bound)).
    pub async fn unblock(&self, key: &RedisKey) -> Result<bool, TrypemaError> {
        let was_blocked = self.redis().unblock(key).await;
        self.forget(key);
        was_blocked
    }
}
