//! Layers that reserve: the reservation lasts until the response has ended, whichever way it ends.

mod contended;
mod ending;
mod handles;
#[cfg(feature = "redis-tokio")]
mod outages;
#[cfg(feature = "redis-tokio")]
mod redis;
mod renewing;
mod settings;
mod waiting;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use tokio::sync::mpsc;
use tower::{Layer, Service, ServiceExt, service_fn};
use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::rules::{Engine, Request as RulesRequest};
use trypema::tower::{
    ByRules, PeerIpKeyExtractor, RateLimitLayer, RateLimitLayerBuilder, ReservedBody, Reserving,
};

use super::scene::{request, rule_set};

/// One slot and a thousand tokens for each client.
pub(crate) const RULES: &str = "
units: [tokens]
rules:
  - {id: slots, scope: ip, strategy: {concurrency: {limit: 1, hold: 30s}}}
  - {id: tokens, scope: ip, unit: tokens, strategy: {absolute: {limit: 1000, window: 1h}}}
";

/// The estimate of each request.
const ESTIMATE: u64 = 100;

/// Longer than any of these tests takes: they fail then.
const FAR_TOO_LONG: Duration = Duration::from_secs(30);

/// An engine of some provider, with its clock.
pub(crate) struct Scene {
    pub(crate) engine: Arc<Engine>,
    pub(crate) clock: Arc<ManualClock>,
}

impl Scene {
    pub(crate) fn local(rules: &str) -> Self {
        let clock = Arc::new(ManualClock::default());
        let limiter = RateLimiter::builder().clock(clock.clone()).build().unwrap();
        Self { engine: Arc::new(Engine::local(Arc::new(limiter), rule_set(rules))), clock }
    }

    pub(crate) fn layer(&self) -> RateLimitLayerBuilder<ByRules<Reserving>> {
        RateLimitLayer::rules(self.engine.clone())
            .attribute("ip", PeerIpKeyExtractor)
            .unit_cost("tokens", |_| Some(ESTIMATE))
            .reserve(Duration::from_secs(600))
    }

    /// The slots and tokens that are left.
    pub(crate) async fn left(&self) -> [u64; 2] {
        let (attributes, costs) = ([("ip", "192.0.2.1")], [("tokens", 0)]);
        let request = RulesRequest::new(&attributes).with_costs(&costs);
        let explained = self.engine.explain(&request).await.unwrap();
        let left = |rule: &str| explained.applying().find(|applying| applying.decision.rule.id == rule);
        ["slots", "tokens"].map(|rule| left(rule).unwrap().left)
    }

    /// Waits until this is left: tasks settle what is counted in Redis.
    pub(crate) async fn assert_left(&self, expected: [u64; 2]) {
        let mut left = self.left().await;
        let wait = async {
            while left != expected {
                tokio::task::yield_now().await;
                left = self.left().await;
            }
        };
        let is_reached = tokio::time::timeout(FAR_TOO_LONG, wait).await;
        assert!(is_reached.is_ok(), "left {left:?} instead of {expected:?}");
    }

    /// Waits until the reservation that is held was renewed by the present time.
    pub(crate) async fn assert_renewed(&self) {
        use trypema::clock::Clock;
        let is_scheduled = || self.clock.next_wake().is_some_and(|next| next > self.clock.now());
        let wait = async {
            while !is_scheduled() {
                tokio::task::yield_now().await;
            }
        };
        assert!(tokio::time::timeout(FAR_TOO_LONG, wait).await.is_ok(), "no renewal is scheduled");
    }
}

/// A body whose frames a test sends one by one.
pub(crate) struct Frames(mpsc::UnboundedReceiver<Result<&'static str, &'static str>>);

pub(crate) type FrameSender = mpsc::UnboundedSender<Result<&'static str, &'static str>>;

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = |text: &'static str| Frame::data(Bytes::from_static(text.as_bytes()));
        self.0.poll_recv(cx).map(|received| received.map(|received| received.map(frame)))
    }
}

/// A response whose body is still running.
pub(crate) struct OpenResponse {
    pub(crate) response: Response<ReservedBody<Frames>>,
    pub(crate) frames: FrameSender,
}

/// Sends a request through the layer to a service that responds with an open body.
pub(crate) async fn open(layer: RateLimitLayerBuilder<ByRules<Reserving>>) -> OpenResponse {
    let (frames, receiver) = mpsc::unbounded_channel();
    let mut receiver = Some(receiver);
    let service = service_fn(move |_: Request<()>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(Frames(receiver.take().unwrap()))))
    });
    // The layer clones the inner service, which can be called only once.
    let service = tower::util::BoxCloneSyncService::new(Once(Arc::new(std::sync::Mutex::new(service))));
    let Ok(response) = layer.build().unwrap().layer(service).oneshot(request()).await;
    OpenResponse { response, frames }
}

/// Shares a service between its clones.
struct Once<S>(Arc<std::sync::Mutex<S>>);

impl<S> Clone for Once<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Service<Request<()>>> Service<Request<()>> for Once<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.lock().unwrap().poll_ready(cx)
    }

    fn call(&mut self, request: Request<()>) -> S::Future {
        self.0.lock().unwrap().call(request)
    }
}

/// The status of a request to a service that responds at once.
pub(crate) async fn status(layer: RateLimitLayerBuilder<ByRules<Reserving>>) -> u16 {
    let service = layer.build().unwrap().layer(service_fn(super::scene::welcome));
    super::scene::answer_of(service, request()).await.status.as_u16()
}

/// Plays cases on counters in this process, and in Redis.
macro_rules! on_both_providers {
    ($($case:ident),+ $(,)?) => {
        mod local {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&super::Scene::local(super::super::RULES)).await;
            })+
        }

        #[cfg(feature = "redis-tokio")]
        mod redis {
            $(#[tokio::test]
            async fn $case() {
                let server = trypema_testkit::redis::Server::start().unwrap();
                super::$case(&super::super::redis::scene(&server, super::super::RULES).await).await;
            })+
        }
    };
}
pub(crate) use on_both_providers;
