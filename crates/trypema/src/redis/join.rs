//! Waiting for several answers at once.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// What each of `futures` gives, in their order, once all have.
pub(super) async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<Waiting<F>> =
        futures.into_iter().map(|future| Waiting::For(Box::pin(future))).collect();
    poll_fn(move |context| {
        for waiting in &mut pending {
            if let Waiting::For(future) = waiting
                && let Poll::Ready(output) = future.as_mut().poll(context)
            {
                *waiting = Waiting::Done(Some(output));
            }
        }
        if pending.iter().any(|waiting| matches!(waiting, Waiting::For(_))) {
            return Poll::Pending;
        }
        Poll::Ready(pending.iter_mut().filter_map(Waiting::take).collect())
    })
    .await
}

enum Waiting<F: Future> {
    For(Pin<Box<F>>),
    Done(Option<F::Output>),
}

impl<F: Future> Waiting<F> {
    fn take(&mut self) -> Option<F::Output> {
        match self {
            Self::For(_) => None,
            Self::Done(output) => output.take(),
        }
    }
}

/// What is done is not pinned: only boxed futures are.
impl<F: Future> Unpin for Waiting<F> {}
