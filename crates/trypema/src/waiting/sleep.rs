//! Sleeping by the clock of a limiter.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use crate::clock::{ClockSource, Timestamp};

/// A future that is ready at a given time. At most one waker is registered with the clock, and only while it
/// sleeps.
pub(crate) struct Sleep<'a> {
    clock: &'a ClockSource,
    at: Timestamp,
    scheduled: Option<Waker>,
}

impl<'a> Sleep<'a> {
    pub(crate) fn until(clock: &'a ClockSource, at: Timestamp) -> Self {
        Self { clock, at, scheduled: None }
    }

    fn cancel(&mut self) {
        if let Some(waker) = self.scheduled.take() {
            self.clock.forget(self.at, &waker);
        }
    }
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // The clock may have woken this task and gone back since, so the wake-up is scheduled again.
        self.cancel();
        if self.clock.now() >= self.at {
            return Poll::Ready(());
        }
        self.scheduled = Some(context.waker().clone());
        self.clock.wake_at(self.at, context.waker());
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Returns the output of `wanted`, or `None` if `limit` is ready first.
pub(crate) async fn with_timeout<T>(wanted: impl Future<Output = T>, limit: Sleep<'_>) -> Option<T> {
    let (mut wanted, mut limit) = (pin!(wanted), pin!(limit));
    poll_fn(|context| {
        if let Poll::Ready(value) = wanted.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        limit.as_mut().poll(context).map(|()| None)
    })
    .await
}
