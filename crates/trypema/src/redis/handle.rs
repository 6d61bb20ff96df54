//! A borrowed handle to one key.

use super::key::RedisKey;
use super::limiter::RedisLimiter;
use super::protocol::Verb;
use super::verb_call::{VerbArgs, VerbCall};
use crate::error::TrypemaError;
use crate::strategy::{Strategy, Wire};

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
        self.decide(limit, VerbArgs::new(Verb::Take, cost)).await
    }

    /// Same as [`RedisLimiter::peek`].
    pub async fn peek<'l>(&self, limit: &'l S::Limit, cost: u64) -> Result<S::Decision<'l>, TrypemaError> {
        self.decide(limit, VerbArgs::new(Verb::Peek, cost)).await
    }

    /// Same as [`RedisLimiter::reset`].
    pub async fn reset(&self) -> Result<bool, TrypemaError> {
        self.limiter.reset(self.key).await
    }

    async fn decide<'l>(&self, limit: &'l S::Limit, args: VerbArgs) -> Result<S::Decision<'l>, TrypemaError> {
        self.limiter.decide(self.name.clone(), VerbCall::new(self.key, limit, args)).await
    }

    /// Returns the key.
    pub fn name(&self) -> &RedisKey {
        self.key
    }
}
