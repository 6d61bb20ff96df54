//! Waits for several futures at once.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// Waits for all `futures`. Returns their outputs in order.
pub(crate) async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<MaybeDone<F>> =
        futures.into_iter().map(|future| MaybeDone::Future(Box::pin(future))).collect();
    poll_fn(move |context| {
        for waiting in &mut pending {
            if let MaybeDone::Future(future) = waiting
                && let Poll::Ready(output) = future.as_mut().poll(context)
            {
                *waiting = MaybeDone::Done(Some(output));
            }
        }
        if pending.iter().any(|waiting| matches!(waiting, MaybeDone::Future(_))) {
            return Poll::Pending;
        }
        Poll::Ready(pending.iter_mut().filter_map(MaybeDone::take).collect())
    })
    .await
}

/// Waits for both futures. Returns both outputs.
pub(crate) async fn both<A: Future, B: Future>(one: A, other: B) -> (A::Output, B::Output) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut first, mut second) = (None, None);
    poll_fn(move |context| {
        if first.is_none() {
            first = as_option(one.as_mut().poll(context));
        }
        if second.is_none() {
            second = as_option(other.as_mut().poll(context));
        }
        match (first.take(), second.take()) {
            (Some(one), Some(other)) => Poll::Ready((one, other)),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

fn as_option<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

enum MaybeDone<F: Future> {
    Future(Pin<Box<F>>),
    Done(Option<F::Output>),
}

impl<F: Future> MaybeDone<F> {
    fn take(&mut self) -> Option<F::Output> {
        match self {
            Self::Future(_) => None,
            Self::Done(output) => output.take(),
        }
    }
}

/// The only pinned data is the boxed future: an output may move.
impl<F: Future> Unpin for MaybeDone<F> {}
