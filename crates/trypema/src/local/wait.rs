//! Waiting until admitted, without an async runtime and without a stampede.
//!
//! The waiters of a key stand in line: only the first one watches the clock, and the next one moves up when
//! it is done. So a thousand waiters cost a thousand takes, not a million.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use thiserror::Error;

use super::limiter::Limiter;
use crate::clock::{Source, Timestamp};
use crate::strategy::Strategy;

/// Who finds more waiters than this in front of a key is turned away.
const MAX_WAITERS_PER_KEY: usize = 10_000;

/// Why waiting ended without being admitted. Nothing was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The cost is more than can ever fit.
    #[error("the cost is above the limit and can never be admitted")]
    Never,
    /// It would take longer than the caller is willing to wait.
    #[error("not admitted within {patience:?}")]
    TooLong {
        /// How long the caller was willing to wait.
        patience: Duration,
    },
    /// Too many callers already wait for this key.
    #[error("{MAX_WAITERS_PER_KEY} callers already wait for this key")]
    TooManyWaiters,
}

impl<S: Strategy> Limiter<S> {
    /// Waits until `cost` is admitted, at most for `patience`; first come, first served for each key.
    ///
    /// Runs on any executor. Dropping the future leaves the line and spends nothing. A wait that would be
    /// longer than `patience` ends at once, without sleeping.
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
        let too_long = WaitError::TooLong { patience };
        let deadline = self.clock.now() + patience;
        let line = self.turns.join(key)?;
        let in_time = Sleep::until(&self.clock, deadline);
        let _turn = first(line.turn.lock_arc(), in_time).await.ok_or(too_long)?;
        loop {
            let decision = self.take(key, limit, cost);
            let core = S::core(&decision);
            if core.is_allowed() {
                return Ok(decision);
            }
            let wait = core.retry_after().ok_or(WaitError::Never)?;
            let again = self.clock.now() + wait;
            if again > deadline {
                return Err(too_long);
            }
            Sleep::until(&self.clock, again).await;
        }
    }
}

/// The lines of waiters, by key.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<Box<str>, Arc<Turn>>>);

type Turn = async_lock::Mutex<()>;

/// A place in the line of a key; leaving it is dropping it.
struct Place<'a> {
    turns: &'a Turns,
    key: &'a str,
    turn: Arc<Turn>,
}

impl Turns {
    fn join<'a>(&'a self, key: &'a str) -> Result<Place<'a>, WaitError> {
        let mut lines = self.lock();
        let turn = match lines.get(key) {
            // One count is the map's; a waiter has one for its place and one while it waits or holds the turn.
            Some(turn) if Arc::strong_count(turn) > 2 * MAX_WAITERS_PER_KEY => {
                return Err(WaitError::TooManyWaiters);
            }
            Some(turn) => Arc::clone(turn),
            None => Arc::clone(lines.entry(key.into()).or_default()),
        };
        Ok(Place { turns: self, key, turn })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<Turn>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.turns.lock();
        // The map's count and this one: nobody else is in line.
        if Arc::strong_count(&self.turn) <= 2 {
            lines.remove(self.key);
        }
    }
}

/// Ready once a moment has come.
struct Sleep<'a> {
    clock: &'a Source,
    at: Timestamp,
    registered: Option<Waker>,
}

impl<'a> Sleep<'a> {
    fn until(clock: &'a Source, at: Timestamp) -> Self {
        Self { clock, at, registered: None }
    }
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.at {
            return Poll::Ready(());
        }
        if !self.registered.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            self.registered = Some(context.waker().clone());
            self.clock.wake_at(self.at, context.waker());
        }
        Poll::Pending
    }
}

/// What `wanted` gives, unless `limit` is ready first.
async fn first<T>(wanted: impl Future<Output = T>, limit: Sleep<'_>) -> Option<T> {
    let (mut wanted, mut limit) = (pin!(wanted), pin!(limit));
    poll_fn(|context| {
        if let Poll::Ready(value) = wanted.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        limit.as_mut().poll(context).map(|()| None)
    })
    .await
}
