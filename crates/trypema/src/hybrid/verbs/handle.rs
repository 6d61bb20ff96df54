//! A borrowed handle to one key.

use super::limiter::HybridLimiter;
use crate::error::TrypemaError;
use crate::redis::RedisKey;
use crate::strategy::Leasable;

/// A handle to one key of a hybrid limiter, for callers that check it in a tight loop.
#[derive(Debug)]
pub struct HybridKeyHandle<'a, S: Leasable> {
    pub(super) limiter: &'a HybridLimiter<S>,
    pub(super) key: &'a RedisKey,
}

impl<S: Leasable> HybridKeyHandle<'_, S> {
    /// Same as [`HybridLimiter::take`].
    pub async fn take<'l>(&self, limit: &'l S::Limit, cost: u64) -> Result<S::Decision<'l>, TrypemaError> {
        self.limiter.take(self.key, limit, cost).await
    }

    /// Same as [`HybridLimiter::try_take`].
    pub fn try_take<'l>(&self, limit: &'l S::Limit, cost: u64) -> Option<S::Decision<'l>> {
        self.limiter.try_take(self.key, limit, cost)
    }

    /// Same as [`HybridLimiter::peek`].
    pub async fn peek<'l>(&self, limit: &'l S::Limit, cost: u64) -> Result<S::Decision<'l>, TrypemaError> {
        self.limiter.peek(self.key, limit, cost).await
    }

    /// Same as [`HybridLimiter::reset`].
    pub async fn reset(&self) -> Result<bool, TrypemaError> {
        self.limiter.reset(self.key).await
    }

    /// Same as [`HybridLimiter::held`].
    pub fn held(&self) -> u64 {
        self.limiter.held(self.key)
    }

    /// Returns the key.
    pub fn name(&self) -> &RedisKey {
        self.key
    }
}
