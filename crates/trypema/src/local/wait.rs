//! Waiting until a take is admitted.

use std::time::Duration;

use super::limiter::LocalLimiter;
use crate::strategy::{Effect, Strategy};
use crate::waiting::{WaitError, WaitState};

impl<S: Strategy> LocalLimiter<S> {
    /// Waits until `cost` is admitted, for at most `patience`. The waiters of a key are served in the order
    /// of their arrival.
    ///
    /// Runs on any executor. Dropping the future leaves the queue and spends nothing. A wait that is known to
    /// exceed `patience` fails immediately, without sleeping. Each try is a take: the abuse strategy counts
    /// it as an attempt, and the suppressed strategy observes it. A refund or a reset does not wake callers
    /// that already wait.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use trypema::{RateLimiter, TokenBucketLimits, TokenLimit};
    ///
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     struct Unpark(std::thread::Thread);
    /// #     impl std::task::Wake for Unpark {
    /// #         fn wake(self: Arc<Self>) {
    /// #             self.0.unpark();
    /// #         }
    /// #     }
    /// #     let waker = Arc::new(Unpark(std::thread::current())).into();
    /// #     let mut future = std::pin::pin!(future);
    /// #     loop {
    /// #         match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
    /// #             std::task::Poll::Ready(output) => return output,
    /// #             std::task::Poll::Pending => std::thread::park(),
    /// #         }
    /// #     }
    /// # }
    /// let rl = RateLimiter::builder().build()?;
    /// let limits = TokenBucketLimits::from(TokenLimit::new(1, Duration::from_millis(10))?);
    /// block_on(async {
    ///     for _ in 0..3 {
    ///         let second = Duration::from_secs(1);
    ///         let decision = rl.local().token_bucket().wait("ann", &limits, 1, second).await;
    ///         assert!(decision.is_ok_and(|decision| decision.is_allowed()));
    ///     }
    /// });
    /// # Ok::<(), trypema::TrypemaError>(())
    /// ```
    pub async fn wait<'l>(
        &self,
        key: &str,
        limit: &'l S::Limit,
        cost: u64,
        patience: Duration,
    ) -> Result<S::Decision<'l>, WaitError> {
        let run = |effect| async move {
            Ok(match effect {
                Effect::Peek => self.peek(key, limit, cost),
                _ => self.take(key, limit, cost),
            })
        };
        let waiting = WaitState::new(self.clock.clone(), patience);
        waiting.until_admitted::<S, _>(&self.waiters, &self.map.hash_key(key).key, run).await
    }
}
