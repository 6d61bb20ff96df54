//! The response future of the middleware.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::config::{AdmittedRequest, LayerConfig, NextStep};
use super::enforcer::{BoxFuture, CheckedRequest, EnforcerError, LayerDecision};
use super::view::{RequestView, ResponseView};

pin_project! {
    /// The response future of [`RateLimitService`](super::RateLimitService).
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
        state: ResponseState<S, B>,
    }
}

pin_project! {
    #[project = ResponseStateProjection]
    enum ResponseState<S, B>
    where
        S: Service<Request<B>>,
    {
        // Waiting for the decision of the store.
        AwaitingDecision { request: Option<Box<AwaitingDecision<S, B>>> },
        // The inner service is running, and its response needs no processing.
        Running { #[pin] future: S::Future },
        // The inner service is running, and its response will be processed. `admitted` is `None` after that.
        RunningThenProcess { #[pin] future: S::Future, admitted: Option<AdmittedRequest> },
        // The response is complete, and the store is counting or refunding the request.
        AwaitingCount { response: Option<Box<AwaitingCount<S::Response>>> },
        // The request was denied.
        Denied { response: Option<Box<Response<String>>> },
    }
}

/// A request that waits for the store, and the inner service that was polled ready for it.
pub(super) struct AwaitingDecision<S, B> {
    pub(super) decision: BoxFuture<Result<CheckedRequest, EnforcerError>>,
    pub(super) service: S,
    pub(super) request: Request<B>,
    pub(super) config: Arc<LayerConfig>,
}

/// A response that waits until the request is counted or refunded.
struct AwaitingCount<R> {
    decision: BoxFuture<Option<LayerDecision>>,
    response: R,
    admitted: AdmittedRequest,
}

impl<S: Service<Request<B>>, B> ResponseFuture<S, B> {
    pub(super) fn running(future: S::Future) -> Self {
        Self { state: ResponseState::Running { future } }
    }

    pub(super) fn running_then_process(future: S::Future, admitted: AdmittedRequest) -> Self {
        Self { state: ResponseState::RunningThenProcess { future, admitted: Some(admitted) } }
    }

    pub(super) fn denied(response: Box<Response<String>>) -> Self {
        Self { state: ResponseState::Denied { response: Some(response) } }
    }

    pub(super) fn awaiting_decision(request: AwaitingDecision<S, B>) -> Self {
        Self { state: ResponseState::AwaitingDecision { request: Some(Box::new(request)) } }
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
                ResponseStateProjection::Running { future } => return future.poll(cx),
                ResponseStateProjection::RunningThenProcess { future, admitted } => {
                    let mut response = ready!(future.poll(cx))?;
                    let Some(mut admitted) = admitted.take() else { return Poll::Pending };
                    let Some(decision) = admitted.count_or_refund(&ResponseView::of(&response)) else {
                        admitted.write_headers(response.headers_mut());
                        return Poll::Ready(Ok(response));
                    };
                    let response = Box::new(AwaitingCount { decision, response, admitted });
                    ResponseState::AwaitingCount { response: Some(response) }
                }
                ResponseStateProjection::Denied { response } => {
                    let Some(response) = response.take() else { return Poll::Pending };
                    return Poll::Ready(Ok(response.map(R::from)));
                }
                ResponseStateProjection::AwaitingDecision { request } => {
                    let Some(waiting) = request else { return Poll::Pending };
                    let checked = ready!(waiting.decision.as_mut().poll(cx));
                    let Some(waiting) = request.take() else { return Poll::Pending };
                    waiting.next_state(checked)
                }
                ResponseStateProjection::AwaitingCount { response } => {
                    let Some(waiting) = response else { return Poll::Pending };
                    let decision = ready!(waiting.decision.as_mut().poll(cx));
                    let Some(waiting) = response.take() else { return Poll::Pending };
                    let AwaitingCount { mut response, mut admitted, .. } = *waiting;
                    admitted.update_decision(decision);
                    admitted.write_headers(response.headers_mut());
                    return Poll::Ready(Ok(response));
                }
            };
            state.set(next);
        }
    }
}

impl<S: Service<Request<B>>, B> AwaitingDecision<S, B> {
    /// Returns the next state, given the decision of the store.
    fn next_state(
        mut self: Box<Self>,
        checked: Result<CheckedRequest, EnforcerError>,
    ) -> ResponseState<S, B> {
        match self.config.next_step(&RequestView::of(&self.request), checked) {
            NextStep::Call => ResponseState::Running { future: self.call_inner() },
            NextStep::CallThenProcess(mut admitted) => {
                admitted.transfer_reservation(self.request.extensions_mut());
                ResponseState::RunningThenProcess { future: self.call_inner(), admitted: Some(admitted) }
            }
            NextStep::Respond(response) => ResponseState::Denied { response: Some(response) },
            NextStep::Wait(decision) => {
                self.decision = decision;
                ResponseState::AwaitingDecision { request: Some(self) }
            }
        }
    }

    fn call_inner(self) -> S::Future {
        let Self { mut service, request, .. } = self;
        service.call(request)
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for ResponseFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
