//! Support for services whose response body is not `From<String>`.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::http::Response;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::body::ResponseBody;
use super::layer::RateLimitLayer;
use super::service::RateLimitService;

/// A [`RateLimitLayer`] for services with any response body. Created by
/// [`any_body`](RateLimitLayer::any_body).
#[derive(Debug, Clone)]
pub struct AnyBodyLayer {
    limit: RateLimitLayer,
}

impl AnyBodyLayer {
    pub(super) fn new(limit: RateLimitLayer) -> Self {
        Self { limit }
    }
}

impl<S> Layer<S> for AnyBodyLayer {
    type Service = RateLimitService<AnyBody<S>>;

    fn layer(&self, inner: S) -> RateLimitService<AnyBody<S>> {
        self.limit.layer(AnyBody { inner })
    }
}

/// A service that converts response bodies to [`ResponseBody`], which is `From<String>`. Created by
/// [`AnyBodyLayer`].
#[derive(Debug, Clone)]
pub struct AnyBody<S> {
    inner: S,
}

impl<S, Q, R> Service<Q> for AnyBody<S>
where
    S: Service<Q, Response = Response<R>>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = AnyBodyFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        AnyBodyFuture { future: self.inner.call(request) }
    }
}

pin_project! {
    /// The response future of [`AnyBody`].
    #[derive(Debug)]
    pub struct AnyBodyFuture<F> {
        #[pin]
        future: F,
    }
}

impl<F, R, E> Future for AnyBodyFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(self.project().future.poll(cx))?;
        Poll::Ready(Ok(response.map(ResponseBody::inner)))
    }
}
