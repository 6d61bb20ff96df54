//! The contract with the inner service: readiness, errors, dropped futures, bodies.

use std::future::{Ready, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service, ServiceExt, service_fn};
use trypema::tower::{PeerIpKeyExtractor, RateLimitLayer, ResponseBody};

use super::charging::HOURLY;
use super::scene::{WELCOME, answer_of, engine, hourly_layer, request};

/// A service that panics if it is called without being ready, and counts its calls.
#[derive(Debug, Default)]
struct Strict {
    is_ready: bool,
    called: Arc<AtomicUsize>,
}

/// A clone is not ready: readiness belongs to one instance, as with a semaphore permit.
impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { is_ready: false, called: self.called.clone() }
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<Full<bytes::Bytes>>;
    type Error = &'static str;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without having been made ready");
        self.called.fetch_add(1, Ordering::SeqCst);
        match request.uri().path() {
            "/broken" => ready(Err("broken")),
            _ => ready(Ok(Response::new(Full::from(WELCOME)))),
        }
    }
}

/// A layer that refunds responses with status 500.
pub(crate) fn refunding(rules: &str) -> RateLimitLayer {
    let builder = RateLimitLayer::rules(engine(rules)).attribute("ip", PeerIpKeyExtractor);
    builder.refund_if(|response| response.status == 500).build().unwrap()
}

pub(crate) async fn respects_readiness(layer: &RateLimitLayer, allowed: usize) {
    let strict = Strict::default();
    let called = strict.called.clone();
    let mut service = layer.layer(strict);
    for expected in [200_u16; 5].into_iter().take(allowed).chain([429, 429]) {
        let response = service.ready().await.unwrap().call(request()).await.unwrap();
        assert_eq!(response.status(), expected);
    }
    assert_eq!(called.load(Ordering::SeqCst), allowed);
}

#[tokio::test]
async fn only_a_service_that_was_made_ready_is_called() {
    respects_readiness(&hourly_layer(2).build().unwrap(), 2).await;
}

#[tokio::test]
async fn also_where_the_request_has_to_wait() {
    respects_readiness(&refunding(HOURLY), 2).await;
}

#[tokio::test]
async fn a_service_that_is_not_ready_keeps_the_layer_from_being() {
    #[derive(Clone)]
    struct Busy;

    impl Service<Request<()>> for Busy {
        type Response = Response<Full<bytes::Bytes>>;
        type Error = &'static str;
        type Future = Ready<Result<Self::Response, Self::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Pending
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            ready(Err("busy"))
        }
    }

    let mut service = hourly_layer(1).build().unwrap().layer(Busy);
    let mut context = Context::from_waker(Waker::noop());
    assert!(Service::<Request<()>>::poll_ready(&mut service, &mut context).is_pending());
}

#[tokio::test]
async fn errors_of_the_service_pass_through() {
    for layer in [hourly_layer(2).build().unwrap(), refunding(HOURLY)] {
        let mut broken = request();
        *broken.uri_mut() = "/broken".parse().unwrap();
        let error: &'static str = layer.layer(Strict::default()).oneshot(broken).await.unwrap_err();
        assert_eq!(error, "broken");
        // An error of the service is not a response, so it is not refunded.
        let mut service = layer.layer(Strict::default());
        for expected in [200, 429] {
            let response = service.ready().await.unwrap().call(request()).await.unwrap();
            assert_eq!(response.status(), expected);
        }
    }
}

/// A request that is dropped before its response stays charged.
#[tokio::test]
async fn a_dropped_request_stays_spent() {
    for layer in [hourly_layer(2).refund_if(|_| true).build().unwrap(), refunding(HOURLY)] {
        let never = service_fn(|_: Request<()>| std::future::pending::<Result<Response<String>, ()>>());
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            let mut service = layer.layer(never);
            let future = pin!(service.ready().await.unwrap().call(request()));
            assert!(future.poll(&mut context).is_pending());
        }
        let response = layer.layer(Strict::default()).oneshot(request()).await.unwrap();
        assert_eq!(response.status(), 429);
    }
}

/// A future that is dropped before its first poll does not call the service.
#[tokio::test]
async fn a_future_that_was_never_polled_calls_nobody() {
    let strict = Strict::default();
    let called = strict.called.clone();
    let mut service = refunding(HOURLY).layer(strict);
    drop(service.ready().await.unwrap().call(request()));
    assert_eq!(called.load(Ordering::SeqCst), 0);
    service.ready().await.unwrap().call(request()).await.unwrap();
    assert_eq!(called.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn bodies_know_their_length() {
    let layer = hourly_layer(1).build().unwrap().any_body();
    let mut bodies = Vec::new();
    for _ in 0..2 {
        bodies.push(layer.layer(Strict::default()).oneshot(request()).await.unwrap().into_body());
    }
    assert_eq!(bodies[0].size_hint().exact(), Some(WELCOME.len() as u64));
    for mut body in bodies {
        assert!(!body.is_end_stream());
        let length = body.size_hint().exact().unwrap();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap().len() as u64, length);
        assert!(body.is_end_stream() && body.frame().await.is_none());
        assert_eq!(body.size_hint().exact(), Some(0));
    }
    let empty = ResponseBody::<Full<bytes::Bytes>>::default();
    assert!(empty.is_end_stream() && empty.size_hint().exact() == Some(0));
}

/// The layer needs only a body type that can be made from text, and responds with the same type.
#[tokio::test]
async fn any_body_made_of_text_will_do() {
    let echo = service_fn(|request: Request<std::rc::Rc<str>>| async move {
        Ok::<_, ()>(Response::new(request.into_body()))
    });
    let layer = hourly_layer(1).build().unwrap();
    for (status, is_echoed) in [(200, true), (429, false)] {
        let mut request = Request::new(std::rc::Rc::from("mine"));
        *request.extensions_mut() = super::scene::request().extensions().clone();
        let response: Response<std::rc::Rc<str>> = layer.layer(echo).oneshot(request).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(&**response.body() == "mine", is_echoed);
    }
}

/// `any_body` makes the layer accept every body type: it responds with a body type of its own.
#[tokio::test]
async fn any_body_at_all_will_do() {
    #[derive(Debug)]
    struct Opaque(std::rc::Rc<str>);

    impl Body for Opaque {
        type Data = bytes::Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
            let text = std::mem::take(&mut self.get_mut().0);
            let frame = || Ok(http_body::Frame::data(bytes::Bytes::copy_from_slice(text.as_bytes())));
            Poll::Ready((!text.is_empty()).then(frame))
        }
    }

    let service = service_fn(|_: Request<()>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Opaque(std::rc::Rc::from(WELCOME))))
    });
    for layer in [hourly_layer(1).build().unwrap(), refunding(&HOURLY.replace("limit: 2", "limit: 1"))] {
        let service = layer.any_body().layer(service);
        let welcome = answer_of(service.clone(), request()).await;
        assert_eq!((welcome.status.as_u16(), welcome.body.as_str()), (200, WELCOME));
        let denied = answer_of(service, request()).await;
        assert_eq!((denied.status.as_u16(), denied.json()["status"].as_u64()), (429, Some(429)));
    }
}

#[test]
fn what_servers_ask_for() {
    fn is_layer<L: Clone + Send + Sync + 'static>(_: &L) {}
    fn is_service<S: Clone + Send + Sync + 'static>(_: &S) {}
    fn is_future<F: Future + Send + 'static>(_: &F) {}

    let layer = hourly_layer(1).build().unwrap();
    is_layer(&layer);
    let mut service = layer.layer(Strict { is_ready: true, ..Strict::default() });
    is_service(&service);
    is_future(&service.call(request()));
    assert_eq!(format!("{layer:?} {service:?}").matches("RateLimit").count(), 2);

    let layer = layer.any_body();
    is_layer(&layer);
    let mut service = layer.layer(Strict { is_ready: true, ..Strict::default() });
    is_service(&service);
    is_future(&service.call(request()));
}
