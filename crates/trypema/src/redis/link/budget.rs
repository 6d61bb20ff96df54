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
