//! Test requests, a service whose status the request chooses, and its parsed response.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use sfv::{BareItem, List, ListEntry, Parser};
use tower::{Layer, Service, ServiceExt, service_fn};
use trypema::clock::ManualClock;
use trypema::rules::{Engine, RuleSet};
use trypema::tower::{ByLimit, RateLimitLayer, RateLimitLayerBuilder};
use trypema::{AbuseLimit, AbuseTier, FixedWindowLimit, RateLimiter};

/// The body of every response of the inner service.
pub(crate) const WELCOME: &str = "welcome";

/// The header in which a request names the status of its response.
pub(crate) const ANSWER_WITH: &str = "x-answer-with";

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// A response, with its body read to the end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        serde_json::from_str(&self.body).unwrap()
    }

    /// Parses a structured field with a single item. Returns the item's name and the values of two
    /// parameters.
    pub(crate) fn field(&self, name: &str, parameters: [&str; 2]) -> (String, [i64; 2]) {
        let list: List = Parser::new(self.header(name).unwrap()).parse().unwrap();
        let [ListEntry::Item(item)] = list.as_slice() else { panic!("{list:?}") };
        let BareItem::String(policy) = &item.bare_item else { panic!("{item:?}") };
        let number = |parameter: &str| match &item.params[parameter] {
            BareItem::Integer(number) => i64::from(*number),
            other => panic!("{other:?}"),
        };
        (policy.as_str().to_owned(), parameters.map(number))
    }
}

/// A request from `address` to `/`.
pub(crate) fn request_from(address: &str) -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(SocketAddr::new(address.parse().unwrap(), 4_000));
    request
}

pub(crate) fn request() -> Request<()> {
    request_from("192.0.2.1")
}

/// A request that the inner service answers with `status`.
pub(crate) fn answered_with(status: u16) -> Request<()> {
    with_header(request(), ANSWER_WITH, &status.to_string())
}

pub(crate) fn with_header(mut request: Request<()>, name: &'static str, value: &str) -> Request<()> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

/// A gRPC request.
pub(crate) fn grpc_call() -> Request<()> {
    let mut call = with_header(request(), "content-type", "application/grpc+proto");
    *call.method_mut() = http::Method::POST;
    call
}

pub(crate) fn to(mut request: Request<()>, path: &str) -> Request<()> {
    *request.uri_mut() = path.parse().unwrap();
    request
}

/// The inner service: responds with the status that the request names.
pub(crate) async fn welcome(request: Request<()>) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    let status = request.headers().get(ANSWER_WITH).map_or("200", |value| value.to_str().unwrap());
    let mut response = Response::new(Full::from(WELCOME));
    *response.status_mut() = status.parse().unwrap();
    Ok(response)
}

/// Sends `request` through `layer` to the inner service.
pub(crate) async fn send(layer: &RateLimitLayer, request: Request<()>) -> Answer {
    answer_of(layer.layer(service_fn(welcome)), request).await
}

/// Sends `request` to `service` and reads the response.
pub(crate) async fn answer_of<S, B>(service: S, request: Request<()>) -> Answer
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Data = bytes::Bytes>,
    B::Error: std::fmt::Debug,
{
    let Ok(response) = service.oneshot(request).await;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { status: parts.status, headers: parts.headers, body: String::from_utf8(body.to_vec()).unwrap() }
}

/// The statuses of requests that are sent one after the other.
pub(crate) async fn statuses(
    layer: &RateLimitLayer,
    requests: impl IntoIterator<Item = Request<()>>,
) -> Vec<u16> {
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(send(layer, request).await.status.as_u16());
    }
    statuses
}

/// A limiter with a clock that the test advances.
pub(crate) fn limiter() -> (Arc<RateLimiter>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    (Arc::new(RateLimiter::builder().clock(clock.clone()).build().unwrap()), clock)
}

/// A limit of `limit` requests per hour, in windows that start on the hour.
pub(crate) fn hourly(limit: u64) -> FixedWindowLimit {
    FixedWindowLimit::new(limit, HOUR).unwrap()
}

/// A layer that admits `limit` requests an hour. Its clock stands still.
pub(crate) fn hourly_layer(limit: u64) -> RateLimitLayerBuilder<ByLimit> {
    RateLimitLayer::builder().limit(hourly(limit)).limiter(limiter().0).name("hourly")
}

/// The third failure within ten minutes blocks for ten minutes.
pub(crate) fn guesses() -> AbuseLimit {
    let tier = |seconds, threshold| {
        let window = Duration::from_secs(seconds);
        AbuseTier::new(window, threshold, window).unwrap()
    };
    AbuseLimit::new(tier(600, 3), tier(86_400, 10))
}

/// An engine with these rules. Its clock stands still.
pub(crate) fn engine(rules: &str) -> Arc<Engine> {
    Arc::new(Engine::local(limiter().0, rule_set(rules)))
}

pub(crate) fn rule_set(rules: &str) -> RuleSet {
    RuleSet::from_yaml(rules, "rules.yaml").unwrap_or_else(|error| panic!("{error}"))
}
