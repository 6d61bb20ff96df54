//! The response future of the middleware.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::config::{Config, Passage, Step};
use super::gate::{BoxFuture, Finding, Found, Trouble};
use super::incoming::{Incoming, ResponseView};

pin_project! {
    /// The response future of [`RateLimit`](super::RateLimit).
    ///
    /// With counters in this process, the request is decided before this future exists, and the future adds
    /// little to that of the inner service. Dropping it early changes nothing in the counters:
    /// [`refund_if`](super::RateLimitLayerBuilder::refund_if) then refunds nothing, and
    /// [`charge_if`](super::RateLimitLayerBuilder::charge_if) charges nothing.
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, B>
    where
        S: Service<Request<B>>,
    {
        // Waiting for the decision of the store.
        Waiting { waiting: Option<Box<Waiting<S, B>>> },
        // The inner service is running, and its response needs no processing.
        Running { #[pin] future: S::Future },
        // The inner service is running, and its response will be processed. `passage` is `None` after that.
        Watched { #[pin] future: S::Future, passage: Option<Passage> },
        // The response is complete, and the store is counting or refunding the request.
        Settling { settling: Option<Box<Settling<S::Response>>> },
        // The request was denied.
        Refused { response: Option<Box<Response<String>>> },
    }
}

/// A request that waits for the store, and the inner service that was polled ready for it.
pub(super) struct Waiting<S, B> {
    pub(super) asking: BoxFuture<Result<Found, Trouble>>,
    pub(super) service: S,
    pub(super) request: Request<B>,
    pub(super) config: Arc<Config>,
}

/// A response that waits until the request is counted or refunded.
struct Settling<R> {
    settling: BoxFuture<Option<Finding>>,
    response: R,
    passage: Passage,
}

impl<S: Service<Request<B>>, B> ResponseFuture<S, B> {
    pub(super) fn running(future: S::Future) -> Self {
        Self { state: State::Running { future } }
    }

    pub(super) fn watched(future: S::Future, passage: Passage) -> Self {
        Self { state: State::Watched { future, passage: Some(passage) } }
    }

    pub(super) fn refused(response: Box<Response<String>>) -> Self {
        Self { state: State::Refused { response: Some(response) } }
    }

    pub(super) fn waiting(waiting: Waiting<S, B>) -> Self {
        Self { state: State::Waiting { waiting: Some(Box::new(waiting)) } }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: From<String>,
{
    type Output = Result<Response<R>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            // A slot is empty only after the future has completed, and then it must not be polled again.
            let next = match state.as_mut().project() {
                StateProjection::Running { future } => return future.poll(cx),
                StateProjection::Watched { future, passage } => {
                    let mut response = ready!(future.poll(cx))?;
                    let Some(mut passage) = passage.take() else { return Poll::Pending };
                    let Some(settling) = passage.settle(&ResponseView::of(&response)) else {
                        passage.finish(response.headers_mut());
                        return Poll::Ready(Ok(response));
                    };
                    let settling = Box::new(Settling { settling, response, passage });
                    State::Settling { settling: Some(settling) }
                }
                StateProjection::Refused { response } => {
                    let Some(response) = response.take() else { return Poll::Pending };
                    return Poll::Ready(Ok(response.map(R::from)));
                }
                StateProjection::Waiting { waiting } => {
                    let Some(asked) = waiting else { return Poll::Pending };
                    let found = ready!(asked.asking.as_mut().poll(cx));
                    let Some(asked) = waiting.take() else { return Poll::Pending };
                    asked.judged(found)
                }
                StateProjection::Settling { settling } => {
                    let Some(settled) = settling else { return Poll::Pending };
                    let finding = ready!(settled.settling.as_mut().poll(cx));
                    let Some(settled) = settling.take() else { return Poll::Pending };
                    let Settling { mut response, mut passage, .. } = *settled;
                    passage.note(finding);
                    passage.finish(response.headers_mut());
                    return Poll::Ready(Ok(response));
                }
            };
            state.set(next);
        }
    }
}

impl<S: Service<Request<B>>, B> Waiting<S, B> {
    /// Returns the next state, given the decision of the store.
    fn judged(mut self: Box<Self>, found: Result<Found, Trouble>) -> State<S, B> {
        match self.config.judge(&Incoming::of(&self.request), found) {
            Step::In => State::Running { future: self.called() },
            Step::Watch(passage) => State::Watched { future: self.called(), passage: Some(passage) },
            Step::Out(response) => State::Refused { response: Some(response) },
            Step::Wait(asking) => {
                self.asking = asking;
                State::Waiting { waiting: Some(self) }
            }
        }
    }

    fn called(self) -> S::Future {
        let Self { mut service, request, .. } = self;
        service.call(request)
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for ResponseFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
