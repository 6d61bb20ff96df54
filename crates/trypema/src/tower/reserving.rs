//! Support for layers that reserve: the reservation lasts until the response body has ended.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::http::{Request, Response};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::body::ResponseBody;
use super::layer::RateLimitLayer;
use super::reservation_handle::{ReservationTransfer, RunningReservation};
use super::service::RateLimitService;

/// A layer with rules that reserves for each request, until the response has ended. Created by
/// [`reserve`](super::RateLimitLayerBuilder::reserve).
///
/// It accepts services with any response body, and gives their responses the body type [`ReservedBody`]. All
/// clones of a layer, and all services they wrap, share their counters.
///
/// With counters in Redis, reservations are settled by tasks of the async runtime. Before you shut it down, [wait
/// for them](crate::rules::Engine::wait_for_settlements).
#[derive(Debug, Clone)]
pub struct ReservingLayer {
    limit: RateLimitLayer,
}

impl ReservingLayer {
    pub(super) fn new(limit: RateLimitLayer) -> Self {
        Self { limit }
    }
}

impl<S> Layer<S> for ReservingLayer {
    type Service = RateLimitService<Reserved<S>>;

    fn layer(&self, inner: S) -> RateLimitService<Reserved<S>> {
        self.limit.layer(Reserved { inner })
    }
}

/// A service that keeps the reservation of each request until its response has ended. Created by
/// [`ReservingLayer`].
#[derive(Debug, Clone)]
pub struct Reserved<S> {
    inner: S,
}

impl<S, B, R> Service<Request<B>> for Reserved<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<ReservedBody<R>>;
    type Error = S::Error;
    type Future = ReservedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // Requests that the layer skips have no reservation.
        let transfer = request.extensions_mut().remove::<ReservationTransfer>();
        let reservation = transfer.and_then(|transfer| transfer.take());
        if let Some(reservation) = &reservation {
            request.extensions_mut().insert(reservation.handle().clone());
        }
        ReservedFuture { future: self.inner.call(request), reservation }
    }
}

pin_project! {
    /// The response future of [`Reserved`]. Dropping it settles the reservation.
    #[derive(Debug)]
    pub struct ReservedFuture<F> {
        // Dropped before the reservation, so that the handler can still set the cost.
        #[pin]
        future: F,
        reservation: Option<RunningReservation>,
    }
}

impl<F, R, E> Future for ReservedFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<ReservedBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.future.poll(cx));
        let reservation = this.reservation.take();
        let keep = |body| ReservedBody { body: ResponseBody::inner(body), reservation };
        Poll::Ready(response.map(|response| response.map(keep)))
    }
}

pin_project! {
    /// The response body behind a [`ReservingLayer`]: that of the inner service, or text. Its reservation is
    /// settled when it ends or is dropped.
    ///
    /// If the inner body is a [`Body`] of [`Bytes`], so is this one, with the same error type.
    #[derive(Debug)]
    pub struct ReservedBody<B> {
        // Dropped before the reservation, so that a stream can still set the cost.
        #[pin]
        body: ResponseBody<B>,
        reservation: Option<RunningReservation>,
    }
}

/// The body of a denial, which has reserved nothing.
impl<B> From<String> for ReservedBody<B> {
    fn from(text: String) -> Self {
        Self { body: ResponseBody::from(text), reservation: None }
    }
}

/// An empty body, which outer layers need for their own responses.
impl<B> Default for ReservedBody<B> {
    fn default() -> Self {
        Self { body: ResponseBody::default(), reservation: None }
    }
}

impl<B: Body<Data = Bytes>> Body for ReservedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            drop(this.reservation.take());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
