//! Waiting until a take is admitted.

use std::time::Duration;

use super::limiter::HybridLimiter;
use crate::redis::RedisKey;
use crate::strategy::{Effect, Leasable};
use crate::waiting::{WaitError, WaitState};

impl<S: Leasable> HybridLimiter<S> {
    /// Waits until `cost` is admitted, for at most `patience`.
    ///
    /// Same as [`redis::RedisLimiter::wait`](crate::redis::RedisLimiter::wait), except that each try is a
    /// take of this provider. Leased units decide a busy key in this process, so waiters are admitted as fast
    /// as units are leased.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use trypema::redis::RedisKey;
    /// use trypema::{FixedWindowLimit, RateLimiter};
    ///
    /// # async fn example(rl: &RateLimiter) -> Result<(), Box<dyn std::error::Error>> {
    /// let limit = FixedWindowLimit::new(100_000, Duration::from_secs(60))?;
    /// let exports = RedisKey::encode("exports:acme");
    /// let decision = rl.hybrid().fixed_window().wait(&exports, &limit, 1, Duration::from_secs(90)).await?;
    /// assert!(decision.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
        patience: Duration,
    ) -> Result<S::Decision<'l>, WaitError> {
        let run = |effect| async move {
            match effect {
                Effect::Peek => self.peek(key, limit, cost).await,
                _ => self.take(key, limit, cost).await,
            }
        };
        let waiting = WaitState::new(self.shared.instance.clock.clone(), patience).with_jitter();
        waiting.until_admitted::<S, _>(self.redis().waiters(), key.as_str().as_bytes(), run).await
    }
}
