//! Waiting until a take is admitted.

use std::time::Duration;

use super::limiter::Limiter;
use crate::redis::RedisKey;
use crate::strategy::Leasable;
use crate::waiting::{WaitError, Waiting};

impl<S: Leasable> Limiter<S> {
    /// Waits until `cost` is admitted, at most for `patience`.
    ///
    /// As [`redis::Limiter::wait`](crate::redis::Limiter::wait), but each try is a take of this provider: a busy key is decided in
    /// this process, by units that were leased before, and waiters are admitted as fast as these come.
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
        let mut waiting = Waiting::new(self.shared.hub.clock.clone(), patience).spread();
        let (waiters, name) = (self.redis().waiters(), key.as_str().as_bytes());
        if S::COUNTS_DENIALS || waiters.is_waiting(name) {
            waiting.plan(&S::core(&self.peek(key, limit, cost).await?))?;
        } else {
            let decision = self.take(key, limit, cost).await?;
            if S::core(&decision).is_allowed() {
                return Ok(decision);
            }
            waiting.plan(&S::core(&decision))?;
        }
        let _position = waiting.turn(waiters, name).await?;
        loop {
            waiting.sleep().await;
            let decision = self.take(key, limit, cost).await?;
            if S::core(&decision).is_allowed() {
                return Ok(decision);
            }
            waiting.plan(&S::core(&decision))?;
        }
    }
}
