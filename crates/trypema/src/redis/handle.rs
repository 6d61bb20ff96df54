//! A borrowed handle to one key.

use super::key::RedisKey;
use super::key_spend::KeySpend;
use super::limiter::RedisLimiter;
use crate::error::TrypemaError;
use crate::strategy::{Effect, Strategy, Wire};

/// A handle to one key of a limiter. It builds the key's name in Redis once.
#[derive(Debug)]
pub struct RedisKeyHandle<'a, S: Strategy> {
    pub(super) limiter: &'a RedisLimiter<S>,
    pub(super) key: &'a RedisKey,
    pub(super) name: Vec<u8>,
}

impl<S: Wire> RedisKeyHandle<'_, S> {
    /// Same as [`RedisLimiter::take`].
    pub async fn take<'l>(&self, limit: &'l S::Limit, cost: u64) -> Result<S::Decision<'l>, TrypemaError> {
        self.decide(Effect::Take, limit, cost).await
    }

    /// Same as [`RedisLimiter::peek`].
    pub async fn peek<'l>(&self, limit: &'l S::Limit, cost: u64) -> Result<S::Decision<'l>, TrypemaError> {
        self.decide(Effect::Peek, limit, cost).await
    }

    /// Same as [`RedisLimiter::reset`].
    pub async fn reset(&self) -> Result<bool, TrypemaError> {
        self.limiter.reset(self.key).await
    }

    async fn decide<'l>(
        &self,
        effect: Effect,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        self.limiter.decide(self.name.clone(), effect, KeySpend::new(self.key, limit, cost)).await
    }

    /// Returns the key.
    pub fn name(&self) -> &RedisKey {
        self.key
    }
}
