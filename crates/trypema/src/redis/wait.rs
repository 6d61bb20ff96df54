//! Waiting until a take is admitted.

use std::time::Duration;

use super::key::RedisKey;
use super::limiter::Limiter;
use crate::strategy::Wire;
use crate::waiting::{Ask, WaitError, Waiting};

impl<S: Wire> Limiter<S> {
    /// Waits until `cost` is admitted, at most for `patience`.
    ///
    /// Takes if it fits, in one call to Redis. Otherwise sleeps for the decision's `retry_after` and a little longer, so that
    /// processes do not all ask at the same moment, and takes again. A cost that never fits, and a wait that is already known to be
    /// longer than `patience`, end at once. Each try is a take, so no interleaving of waiters exceeds the limit.
    ///
    /// The waiters of a key in one process are admitted in the order in which they came, and only the first of them asks. So a process
    /// whose callers have to wait is admitted at most once per round trip for each key; for more, use the hybrid provider.
    /// Between processes there is no order.
    ///
    /// A failure of Redis is what it is for [`Limiter::take`]: an error ([`WaitError::Store`]), or the answer of the failure
    /// policy. If that answer is a denial, the wait goes on.
    ///
    /// Runs on any executor. Dropping the future spends nothing more; a take that was already sent stays spent. A refund or a
    /// reset does not wake a caller that already waits.
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
        let ask = |ask| async move {
            match ask {
                Ask::Peek => self.peek(key, limit, cost).await,
                Ask::Take => self.take(key, limit, cost).await,
            }
        };
        let waiting = Waiting::new(self.store.clock(), patience).spread();
        waiting.admitted::<S, _>(&self.waiters, key.as_str().as_bytes(), ask).await
    }
}
