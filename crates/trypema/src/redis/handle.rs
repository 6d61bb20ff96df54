//! A borrowed handle to one key.

use super::ask::Verb;
use super::key::RedisKey;
use super::key_call::{Asking, KeyCall};
use super::limiter::Limiter;
use crate::error::TrypemaError;
use crate::strategy::{Strategy, Wire};

/// One key of a limiter, whose name in Redis was made once.
#[derive(Debug)]
pub struct KeyHandle<'a, S: Strategy> {
    pub(super) limiter: &'a Limiter<S>,
    pub(super) key: &'a RedisKey,
    pub(super) name: Vec<u8>,
}

impl<S: Wire> KeyHandle<'_, S> {
    /// As [`Limiter::take`].
    pub async fn take<'l>(&self, limit: &'l S::Limit, cost: u64) -> Result<S::Decision<'l>, TrypemaError> {
        self.decide(limit, Asking::new(Verb::Take, cost)).await
    }

    /// As [`Limiter::peek`].
    pub async fn peek<'l>(&self, limit: &'l S::Limit, cost: u64) -> Result<S::Decision<'l>, TrypemaError> {
        self.decide(limit, Asking::new(Verb::Peek, cost)).await
    }

    /// As [`Limiter::reset`].
    pub async fn reset(&self) -> Result<bool, TrypemaError> {
        self.limiter.reset(self.key).await
    }

    async fn decide<'l>(&self, limit: &'l S::Limit, asking: Asking) -> Result<S::Decision<'l>, TrypemaError> {
        self.limiter.decide(self.name.clone(), KeyCall::new(self.key, limit, asking)).await
    }

    /// The key.
    pub fn name(&self) -> &RedisKey {
        self.key
    }
}
