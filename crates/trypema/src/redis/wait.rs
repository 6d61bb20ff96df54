//! Waiting until a take is admitted.

use std::time::Duration;

use super::key::RedisKey;
use super::limiter::RedisLimiter;
use crate::strategy::{Effect, Wire};
use crate::waiting::{WaitError, WaitState};

impl<S: Wire> RedisLimiter<S> {
    /// Waits until `cost` is admitted, for at most `patience`.
    ///
    /// If the cost fits, this takes it in one call to Redis. Otherwise it sleeps for the decision's
    /// `retry_after`, plus some jitter so that processes do not all retry at the same moment, and takes
    /// again. It fails at once if the cost can never fit, or if the wait is already known to be longer than
    /// `patience`. Each try is a take, so no interleaving of waiters exceeds the limit.
    ///
    /// Waiters for one key in one process are admitted in order of arrival, and only the first of them
    /// retries. So waiters for one key are admitted at most once per round trip and process; for more, use
    /// the hybrid provider. There is no order between processes.
    ///
    /// A failure of Redis is handled as in [`RedisLimiter::take`]: it is an error ([`WaitError::Store`]), or
    /// the failure policy decides. If the policy denies the call, the wait goes on.
    ///
    /// Runs on any executor. Dropping the future spends nothing more, but a take that was already sent
    /// stays spent. A refund or a reset does not wake a waiting caller.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use trypema::redis::RedisKey;
    /// use trypema::{RateLimiter, TokenBucketLimits, TokenLimit, WaitError};
    ///
    /// # async fn example(rl: &RateLimiter) -> Result<(), Box<dyn std::error::Error>> {
    /// // The whole fleet sends at most 50 mails a second.
    /// let limits = TokenBucketLimits::from(TokenLimit::new(50, Duration::from_secs(1))?);
    /// let mails = RedisKey::encode("provider:mail");
    /// match rl.redis().token_bucket().wait(&mails, &limits, 1, Duration::from_secs(30)).await {
    ///     Ok(_) => println!("send it"),
    ///     Err(WaitError::TooLong { .. }) => println!("try again later"),
    ///     Err(error) => return Err(error.into()),
    /// }
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
        let waiting = WaitState::new(self.store.clock(), patience).with_jitter();
        waiting.until_admitted::<S, _>(&self.waiters, key.as_str().as_bytes(), run).await
    }
}
