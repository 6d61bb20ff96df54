//! The response to come.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::ResponseBody;
use super::config::{Config, Passage, Step};
use super::gate::{BoxFuture, Finding, Found, Trouble};
use super::incoming::{Incoming, ResponseView};

pin_project! {
    /// The response to come of [`RateLimit`](super::RateLimit).
    ///
    /// With counters in this process the request was decided on before this exists, and it is the future of the
    /// service inside and little more. Dropped before its end, it leaves things as they are: what
    /// [`refund_if`](super::RateLimitLayerBuilder::refund_if) might have given back stays spent, and what
    /// [`charge_if`](super::RateLimitLayerBuilder::charge_if) might have charged stays free.
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B>,
        // What is left to do once there is a response.
        passage: Option<Passage>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, B>
    where
        S: Service<Request<B>>,
    {
        // The store is being asked.
        Waiting { waiting: Option<Box<Waiting<S, B>>> },
        // The request was let in.
        Running { #[pin] future: S::Future },
        // The response is there, and the store is being told what it means.
        Settling { settling: Option<Box<Settling<S::Response>>> },
        // The request was not let in.
        Refused { response: Option<Box<Response<String>>> },
    }
}

/// A request that the store is being asked about, and the service that was made ready for it.
struct Waiting<S, B> {
    asking: BoxFuture<Result<Found, Trouble>>,
    service: S,
    request: Request<B>,
    config: Arc<Config>,
}

/// A response that has to wait until it was settled.
struct Settling<R> {
    settling: BoxFuture<Option<Finding>>,
    response: R,
    passage: Passage,
}

impl<S: Service<Request<B>>, B> ResponseFuture<S, B> {
    pub(super) fn running(future: S::Future, passage: Option<Passage>) -> Self {
        Self { state: State::Running { future }, passage }
    }

    pub(super) fn refused(response: Response<String>) -> Self {
        Self { state: State::Refused { response: Some(Box::new(response)) }, passage: None }
    }

    pub(super) fn waiting(
        asking: BoxFuture<Result<Found, Trouble>>,
        (service, request): (S, Request<B>),
        config: Arc<Config>,
    ) -> Self {
        let waiting = Box::new(Waiting { asking, service, request, config });
        Self { state: State::Waiting { waiting: Some(waiting) }, passage: None }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (mut state, passage) = (this.state, this.passage);
        loop {
            // A place that is empty belongs to a future that has ended, and those are not polled again.
            let next = match state.as_mut().project() {
                StateProjection::Running { future } => {
                    let response = ready!(future.poll(cx))?;
                    let Some(mut passage) = passage.take() else {
                        return Poll::Ready(Ok(ResponseBody::inner(response)));
                    };
                    let Some(settling) = passage.settle(&ResponseView::of(&response)) else {
                        return Poll::Ready(Ok(passage.finish(response)));
                    };
                    let settling = Box::new(Settling { settling, response, passage });
                    State::Settling { settling: Some(settling) }
                }
                StateProjection::Refused { response } => {
                    let Some(response) = response.take() else { return Poll::Pending };
                    return Poll::Ready(Ok(ResponseBody::text(*response)));
                }
                StateProjection::Waiting { waiting } => {
                    let Some(asked) = waiting else { return Poll::Pending };
                    let found = ready!(asked.asking.as_mut().poll(cx));
                    let Some(asked) = waiting.take() else { return Poll::Pending };
                    asked.judged(found, passage)
                }
                StateProjection::Settling { settling } => {
                    let Some(settled) = settling else { return Poll::Pending };
                    let finding = ready!(settled.settling.as_mut().poll(cx));
                    let Some(mut settled) = settling.take() else { return Poll::Pending };
                    settled.passage.note(finding);
                    return Poll::Ready(Ok(settled.passage.finish(settled.response)));
                }
            };
            state.set(next);
        }
    }
}

impl<S: Service<Request<B>>, B> Waiting<S, B> {
    /// What comes after the answer of the store, and what is left to do after that.
    fn judged(mut self: Box<Self>, found: Result<Found, Trouble>, left: &mut Option<Passage>) -> State<S, B> {
        match self.config.judge(&Incoming::of(&self.request), found) {
            Step::In(passage) => {
                *left = passage;
                let Self { mut service, request, .. } = *self;
                State::Running { future: service.call(request) }
            }
            Step::Out(response) => State::Refused { response: Some(Box::new(response)) },
            Step::Wait(asking) => {
                self.asking = asking;
                State::Waiting { waiting: Some(self) }
            }
        }
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for ResponseFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
