//! A bound on how long work is driven, without a timer of any async runtime.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};

/// While it is driven, work is looked at this often; a longer gap means that nobody drove it, and is not
/// held against it beyond this.
const TICK: Duration = Duration::from_millis(100);

/// Drives `future` for about `budget`; `None` when that is used up. Time in which nobody drives it is not
/// counted, so that callers with short deadlines can finish a long dial together.
pub(super) async fn within<F: Future>(budget: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = budget;
    let mut last_look = SystemClock.now();
    let mut wake_at = last_look;
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        let now = SystemClock.now();
        let gap = Duration::from_micros(now.as_micros().saturating_sub(last_look.as_micros()));
        left = left.saturating_sub(gap.min(TICK));
        last_look = now;
        if left.is_zero() {
            return Poll::Ready(None);
        }
        if now >= wake_at {
            wake_at = now + left.min(TICK);
            SystemClock.wake_at(wake_at, context.waker());
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::pin::Pin;
    use std::task::{Context, Waker};

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn work_that_is_done_at_once_needs_no_budget_and_other_work_ends_without_one() {
        assert_eq!(poll(pin!(within(Duration::ZERO, async { 7 }))), Poll::Ready(Some(7)));
        assert_eq!(poll(pin!(within(Duration::ZERO, pending::<u8>()))), Poll::Ready(None));
        assert_eq!(poll(pin!(within(Duration::from_secs(3_600), pending::<u8>()))), Poll::Pending);
    }

    #[test]
    fn the_budget_runs_out_while_it_is_driven_and_not_before() {
        let budget = Duration::from_millis(5);
        let start = SystemClock.now();
        let mut work = pin!(within(budget, pending::<u8>()));
        while poll(work.as_mut()).is_pending() {
            assert!(SystemClock.now() < start + Duration::from_secs(10));
            std::thread::yield_now();
        }
        assert!(SystemClock.now() >= start + budget);
    }
}
