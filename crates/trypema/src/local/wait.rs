//! Waiting until admitted, without an async runtime and without a stampede.
//!
//! The waiters of a key stand in line: only the first one watches the clock, and the next one moves up when
//! it is done. So a thousand waiters cost a thousand takes, not a million.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use thiserror::Error;

use super::limiter::Limiter;
use crate::clock::{Source, Timestamp};
use crate::strategy::Strategy;

/// Who finds more waiters than this in front of a key is turned away.
const MAX_WAITERS_PER_KEY: usize = 10_000;

/// Why waiting ended without being admitted. Nothing was spent; what a strategy counts of denials was counted.
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
    /// Runs on any executor. Dropping the future leaves the line and spends nothing. A wait that is already
    /// known to be longer than `patience` ends at once, without sleeping. Tries are takes: abuse counts them
    /// as attempts, and suppressed observes them. A refund or a reset does not wake who already waits.
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
        // Whoever stands in line waits at least as long as if there were none.
        match S::core(&self.peek(key, limit, cost)).retry_after() {
            None => return Err(WaitError::Never),
            Some(wait) if wait > patience => return Err(too_long),
            Some(_) => {}
        }
        let place = self.turns.join(&self.map.hashed(key).key)?;
        first(poll_fn(|context| place.poll_turn(context)), Sleep::until(&self.clock, deadline))
            .await
            .ok_or(too_long)?;
        loop {
            let decision = self.take(key, limit, cost);
            let core = S::core(&decision);
            if core.is_allowed() {
                return Ok(decision);
            }
            let wait = core.retry_after().ok_or(WaitError::Never)?;
            let now = self.clock.now();
            let again = now + wait;
            // A clock at the end of time never gets there.
            if again > deadline || again == now {
                return Err(too_long);
            }
            Sleep::until(&self.clock, again).await;
        }
    }
}

/// The lines of waiters, by key.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<Box<[u8]>, Line>>);

/// Who waits for one key, in the order of coming; the first has the turn.
#[derive(Debug, Default)]
struct Line {
    next_ticket: u64,
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    waker: Option<Waker>,
}

impl Turns {
    fn join(&self, key: &[u8]) -> Result<Place<'_>, WaitError> {
        let mut lines = self.lock();
        let line = lines.entry(key.into()).or_default();
        if line.waiters.len() == MAX_WAITERS_PER_KEY {
            return Err(WaitError::TooManyWaiters);
        }
        let ticket = line.next_ticket;
        line.next_ticket += 1;
        line.waiters.push_back(Waiter { ticket, waker: None });
        Ok(Place { turns: self, key: key.into(), ticket })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the line of a key; leaving it is dropping it.
struct Place<'a> {
    turns: &'a Turns,
    key: Box<[u8]>,
    ticket: u64,
}

impl Place<'_> {
    /// Ready when nobody stands in front.
    fn poll_turn(&self, context: &Context<'_>) -> Poll<()> {
        let mut lines = self.turns.lock();
        let Some(line) = lines.get_mut(&self.key) else { return Poll::Ready(()) };
        match line.waiters.binary_search_by_key(&self.ticket, |waiter| waiter.ticket) {
            Ok(0) | Err(_) => Poll::Ready(()),
            Ok(position) => {
                let old = line.waiters[position].waker.replace(context.waker().clone());
                // Dropping a waker may run code of the executor's: not under the lock.
                drop(lines);
                drop(old);
                Poll::Pending
            }
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.turns.lock();
        let Some(line) = lines.get_mut(&self.key) else { return };
        let position = line.waiters.binary_search_by_key(&self.ticket, |waiter| waiter.ticket);
        let left = position.ok().and_then(|position| line.waiters.remove(position));
        let next = line.waiters.front_mut().and_then(|waiter| waiter.waker.take());
        if line.waiters.is_empty() {
            lines.remove(&self.key);
        }
        drop(lines);
        drop(left);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

/// Ready once a moment has come. Its waker is known to the clock once at a time, and no longer than it waits.
struct Sleep<'a> {
    clock: &'a Source,
    at: Timestamp,
    alarm: Option<Waker>,
}

impl<'a> Sleep<'a> {
    fn until(clock: &'a Source, at: Timestamp) -> Self {
        Self { clock, at, alarm: None }
    }

    fn cancel(&mut self) {
        if let Some(waker) = self.alarm.take() {
            self.clock.forget(self.at, &waker);
        }
    }
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // The clock may have rung and gone back since: what it knows is replaced, never assumed.
        self.cancel();
        if self.clock.now() >= self.at {
            return Poll::Ready(());
        }
        self.alarm = Some(context.waker().clone());
        self.clock.wake_at(self.at, context.waker());
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.cancel();
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
