//! The service: checks a request before it calls the inner service.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Request, Response};
use tower_service::Service;

use super::config::{LayerConfig, NextStep};
use super::future::{AwaitingDecision, ResponseFuture};
use super::view::RequestView;

/// A service that calls the inner service only for requests within the limits. Created by
/// [`RateLimitLayer`](super::RateLimitLayer).
///
/// It is ready when the inner service is. A request that waits for Redis takes the inner service that was
/// polled ready, and leaves a clone in its place. Clones share everything except the inner service.
///
/// Responses have the body type of the inner service, which has to be `From<String>` because denials need a
/// body: axum's is, and so is `http_body_util::Full`. For tonic's and all others, see
/// [`any_body`](super::RateLimitLayer::any_body).
#[derive(Clone)]
pub struct RateLimitService<S> {
    inner: S,
    config: Arc<LayerConfig>,
}

impl<S> RateLimitService<S> {
    pub(super) fn new(inner: S, config: Arc<LayerConfig>) -> Self {
        Self { inner, config }
    }

    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B, R> Service<Request<B>> for RateLimitService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.config.check(&RequestView::of(&request)) {
            NextStep::Call => ResponseFuture::running(self.inner.call(request)),
            step => self.run_step(step, request),
        }
    }
}

impl<S> RateLimitService<S> {
    /// Handles the less common steps. Not inlined, to keep the moves of the large values out of the fast
    /// path.
    #[inline(never)]
    fn run_step<B>(&mut self, step: NextStep, mut request: Request<B>) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>> + Clone,
    {
        match step {
            NextStep::Call => ResponseFuture::running(self.inner.call(request)),
            NextStep::CallThenProcess(mut admitted) => {
                admitted.transfer_reservation(request.extensions_mut());
                ResponseFuture::running_then_process(self.inner.call(request), admitted)
            }
            NextStep::Respond(response) => ResponseFuture::denied(response),
            NextStep::Wait(decision) => {
                let clone = self.inner.clone();
                let service = std::mem::replace(&mut self.inner, clone);
                let config = Arc::clone(&self.config);
                ResponseFuture::awaiting_decision(AwaitingDecision { decision, service, request, config })
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimitService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitService").field("inner", &self.inner).finish_non_exhaustive()
    }
}
