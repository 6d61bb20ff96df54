//! Redis cannot be reached when a response ends, and the process ends after its last response.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Extension;
use axum::routing::get;
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt, service_fn};
use trypema::RateLimiter;
use trypema::clock::{Clock, ManualClock};
use trypema::rules::Engine;
use trypema::tower::{RateLimitLayer, ReservationHandle};
use trypema_testkit::redis::{FaultProxy, Server};

use super::{ESTIMATE, FAR_TOO_LONG, Frames, RULES, Scene, open, status};
use crate::tower::scene::{request, rule_set};

/// The cost of a request that needs more than its estimate.
const COST: u64 = 250;

/// The deadline of calls that are to fail.
const DEADLINE: Duration = Duration::from_millis(300);

/// Like [`super::redis::scene`], on the system's clock.
async fn scene_in_real_time(url: &str, deadline: Duration) -> Scene {
    let connection = trypema_testkit::blocking::dial(url).await;
    let limiter = RateLimiter::builder().redis(connection).redis_deadline(deadline).build().unwrap();
    let engine = Arc::new(Engine::redis(Arc::new(limiter), rule_set(RULES)));
    Scene { engine, clock: Arc::default() }
}

/// Like [`super::redis::scene`], behind a proxy.
async fn scene_behind(proxy: &FaultProxy) -> Scene {
    let clock = Arc::new(ManualClock::default());
    let connection = trypema_testkit::blocking::dial(&proxy.url()).await;
    let limiter = RateLimiter::builder().redis(connection).redis_deadline(Duration::from_secs(20));
    let limiter = Arc::new(limiter.clock(clock.clone()).build().unwrap());
    Scene { engine: Arc::new(Engine::redis(limiter, rule_set(RULES))), clock }
}

/// A response whose handler has set [`COST`], and which runs until it is dropped.
async fn open_at_cost(scene: &Scene) -> impl Sized + use<> {
    let service = service_fn(|mut request: http::Request<()>| async move {
        let handle: ReservationHandle = request.extensions_mut().remove().unwrap();
        handle.settle_at(&[("tokens", COST)]).unwrap();
        Ok::<_, std::convert::Infallible>(http::Response::new(Frames(mpsc::unbounded_channel().1)))
    });
    let Ok(response) = scene.layer().build().unwrap().layer(service).oneshot(request()).await;
    response
}

/// Waits until a retry is scheduled.
async fn until_failed(clock: &ManualClock) {
    let wait = async {
        while clock.next_wake().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(FAR_TOO_LONG, wait).await.is_ok(), "no retry is scheduled");
}

/// The application makes no call: the layer tries again by itself.
#[tokio::test]
async fn a_response_that_ends_during_an_outage_is_settled_afterwards() {
    type Step = fn(&Server, &FaultProxy);
    let outages: [[Step; 2]; 2] = [
        [|_, proxy| proxy.refuse(), |_, proxy| proxy.heal()],
        // A paused Redis may have received the first try.
        [|server, _| server.stop().unwrap(), |server, _| server.cont().unwrap()],
    ];
    for [begin, end] in outages {
        let server = Server::start().unwrap();
        let proxy = FaultProxy::start(server.addr()).unwrap();
        let scene = scene_in_real_time(&proxy.url(), DEADLINE).await;
        let other = scene_in_real_time(&server.url(), Duration::from_secs(20)).await;
        let open = open_at_cost(&scene).await;
        other.assert_left([0, 1_000 - ESTIMATE]).await;
        begin(&server, &proxy);
        drop(open);
        tokio::time::sleep(3 * DEADLINE).await;
        end(&server, &proxy);
        other.assert_left([1, 1_000 - COST]).await;
        tokio::time::timeout(FAR_TOO_LONG, scene.engine.wait_for_settlements()).await.unwrap();
    }
}

/// The same on a driven clock.
#[tokio::test]
async fn a_settlement_is_tried_again_after_250_ms() {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let (scene, other) = (scene_behind(&proxy).await, super::redis::scene(&server, RULES).await);
    let open = open_at_cost(&scene).await;
    proxy.refuse();
    drop(open);
    until_failed(&scene.clock).await;
    // The circuit breaker closes by a call, and by the system's clock. On that clock, a retry would be such a call.
    proxy.heal();
    while scene.engine.holders("slots|ip=192.0.2.1").await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    other.assert_left([0, 1_000 - ESTIMATE]).await;
    scene.clock.advance(Duration::from_millis(250));
    tokio::time::timeout(FAR_TOO_LONG, scene.engine.wait_for_settlements()).await.unwrap();
    assert_eq!(other.left().await, [1, 1_000 - COST]);
    assert_eq!(scene.clock.next_wake(), None, "no timer is left");
}

/// When the reservation has expired, nothing is left to settle. A renewal that failed may have been made.
#[tokio::test]
async fn retries_end_when_the_reservation_has_expired() {
    for is_renewed in [true, false] {
        let server = Server::start().unwrap();
        let proxy = FaultProxy::start(server.addr()).unwrap();
        let scene = scene_behind(&proxy).await;
        let open = open_at_cost(&scene).await;
        if !is_renewed {
            proxy.refuse();
        }
        scene.clock.advance(Duration::from_secs(10));
        scene.assert_renewed().await;
        proxy.refuse();
        drop(open);
        let lasted = drive_retries(&scene).await;
        let (least, most) = (Duration::from_millis(29_750), Duration::from_secs(30));
        assert!((least..most).contains(&lasted), "the last try was after {lasted:?}");
    }
}

/// Moves the clock from one retry to the next. Returns the time of the last one, counted from now.
async fn drive_retries(scene: &Scene) -> Duration {
    let start = scene.clock.now();
    let mut last = start;
    let mut done = pin!(scene.engine.wait_for_settlements());
    let drive = async {
        while poll_once(done.as_mut()).await.is_pending() {
            if let Some(next) = scene.clock.next_wake() {
                last = next;
                scene.clock.set(next);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(FAR_TOO_LONG, drive).await.unwrap();
    Duration::from_micros(last.as_micros() - start.as_micros())
}

/// The settlement is on its way when the last response has ended.
#[tokio::test]
async fn waiting_for_settlements_ends_when_they_have_reached_redis() {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let connection = trypema_testkit::blocking::dial(&proxy.url()).await;
    let limiter = RateLimiter::builder().redis(connection).redis_deadline(Duration::from_secs(20));
    for new in [Engine::redis, Engine::hybrid] {
        let limiter = Arc::new(limiter.clone().build().unwrap());
        let scene = Scene { engine: Arc::new(new(limiter, rule_set(RULES))), clock: Arc::default() };
        let other = scene_in_real_time(&server.url(), Duration::from_secs(20)).await;
        let before = other.left().await[1];
        assert_eq!(poll_once(pin!(scene.engine.wait_for_settlements())).await, Poll::Ready(()));
        let open = open_at_cost(&scene).await;
        assert_eq!(poll_once(pin!(scene.engine.wait_for_settlements())).await, Poll::Ready(()), "none yet");
        proxy.freeze();
        drop(open);
        let mut done = pin!(scene.engine.wait_for_settlements());
        for _ in 0..100 {
            assert_eq!(poll_once(done.as_mut()).await, Poll::Pending);
            tokio::task::yield_now().await;
        }
        proxy.heal();
        tokio::time::timeout(FAR_TOO_LONG, done).await.unwrap();
        assert_eq!(other.left().await, [1, before - COST]);
    }
}

/// As in `docs/http.md`: axum's graceful shutdown, the wait, and the end of the runtime. Redis is unreachable when the
/// last response ends, so that nothing but the wait can save its settlement.
#[test]
fn a_graceful_shutdown_loses_no_settlement() {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let scene = scene_in_real_time(&proxy.url(), DEADLINE).await;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (frames, receiver) = mpsc::unbounded_channel();
        let body = Arc::new(std::sync::Mutex::new(Some(Frames(receiver))));
        let handler = move |Extension(handle): Extension<ReservationHandle>| async move {
            handle.settle_at(&[("tokens", COST)]).unwrap();
            Body::new(body.lock().unwrap().take().unwrap())
        };
        let layer = RateLimitLayer::rules(scene.engine.clone())
            .attribute("ip", |_: &trypema::tower::RequestView<'_>| Some("192.0.2.1".to_owned()))
            .unit_cost("tokens", |_| Some(ESTIMATE))
            .reserve(Duration::from_secs(600));
        let app = Router::new().route("/", get(handler)).layer(layer.build().unwrap());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let stopped = async { stopped.await.unwrap() };
            axum::serve(listener, app).with_graceful_shutdown(stopped).await.unwrap();
        });
        let client = tokio::task::spawn_blocking(move || {
            ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap()
        });
        frames.send(Ok("one")).unwrap();
        while scene.left().await != [0, 1_000 - ESTIMATE] {
            tokio::task::yield_now().await;
        }
        proxy.refuse();
        stop.send(()).unwrap();
        drop(frames);
        tokio::time::timeout(FAR_TOO_LONG, serving).await.unwrap().unwrap();
        assert_eq!(client.await.unwrap(), "one");
        proxy.heal();
        tokio::time::timeout(FAR_TOO_LONG, scene.engine.wait_for_settlements()).await.unwrap();
    });
    drop(runtime);
    let left = async { scene_in_real_time(&server.url(), FAR_TOO_LONG).await.left().await };
    assert_eq!(tokio::runtime::Runtime::new().unwrap().block_on(left), [1, 1_000 - COST]);
}

/// Counters in this process never wait.
#[test]
fn local_counters_have_nothing_to_wait_for() {
    let scene = Scene::local(RULES);
    smol::block_on(async {
        drop(open(scene.layer()).await);
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(pin!(scene.engine.wait_for_settlements()).poll(&mut context), Poll::Ready(()));
        assert_eq!(status(scene.layer()).await, 200);
    });
}

async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}
