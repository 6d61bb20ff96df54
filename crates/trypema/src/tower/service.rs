//! The service: asks before it calls the one inside.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Request, Response};
use tower_service::Service;

use super::config::{Config, Step};
use super::future::{ResponseFuture, Waiting};
use super::incoming::Incoming;

/// A service that lets requests through to the one inside as far as limits allow. Made by
/// [`RateLimitLayer`](super::RateLimitLayer).
///
/// It is ready when the service inside is: a request that has to wait for Redis takes the service that was made ready
/// with it and leaves a clone. Clones share everything but the service inside.
///
/// Responses have the body type of the service inside, which has to be made `From<String>` for those that deny: axum's
/// is, and so is `http_body_util::Full`. For tonic's and all others see
/// [`any_body`](super::RateLimitLayer::any_body).
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }

    /// The service inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service inside.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
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
        match self.config.receive(&Incoming::of(&request)) {
            Step::In => ResponseFuture::running(self.inner.call(request)),
            step => self.follow(step, request),
        }
    }
}

impl<S> RateLimit<S> {
    /// The ways that fewer requests go. Apart, because what is moved for one of them would be moved for all.
    #[inline(never)]
    fn follow<B>(&mut self, step: Step, request: Request<B>) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>> + Clone,
    {
        match step {
            Step::In => ResponseFuture::running(self.inner.call(request)),
            Step::Watch(passage) => ResponseFuture::watched(self.inner.call(request), passage),
            Step::Out(response) => ResponseFuture::refused(response),
            Step::Wait(asking) => {
                let clone = self.inner.clone();
                let service = std::mem::replace(&mut self.inner, clone);
                let config = Arc::clone(&self.config);
                ResponseFuture::waiting(Waiting { asking, service, request, config })
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}
