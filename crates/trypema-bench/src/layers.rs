//! Rate limit layers around an axum handler that does nothing, called in process.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use http::{Request, StatusCode};
use tower::Service;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::PeerIpKeyExtractor as TheirPeer;
use trypema::RateLimiter;
use trypema::http::HeaderStyle;
use trypema::rules::Engine;
use trypema::tower::{HeaderKeyExtractor, PeerIpKeyExtractor, RateLimitLayer, RequestView};

use crate::allocator::allocations;
use crate::rules::{Runner, rules, time, verdict};

/// A burst that no measurement exhausts.
const PLENTY: u32 = 1_000;
/// The number of client addresses, which take turns.
const CLIENTS: u32 = 10_000;

pub fn compare(text: &mut String) {
    let mut runners = vec![
        runner("no layer", bare(), StatusCode::OK),
        runner("tower_governor", governor(PLENTY), StatusCode::OK),
        runner("trypema", ours(PLENTY, HeaderStyle::None), StatusCode::OK),
        runner("tower_governor, headers", governor_with_headers(), StatusCode::OK),
        runner("trypema, X-RateLimit", ours(PLENTY, HeaderStyle::XRateLimit), StatusCode::OK),
        runner("trypema, RateLimit", ours(PLENTY, HeaderStyle::Standard), StatusCode::OK),
        runner("tower_governor, denied", governor(1), StatusCode::TOO_MANY_REQUESTS),
        runner("trypema, denied", ours(1, HeaderStyle::None), StatusCode::TOO_MANY_REQUESTS),
        runner("trypema, five of 10,000 rules", by_rules(), StatusCode::OK),
    ];
    // The first requests make every client known and exhaust the limits of the denying layers.
    (0..2 * CLIENTS).for_each(|_| runners.iter_mut().for_each(|runner| (runner.call)()));
    let times = time(&mut runners);
    let _ = writeln!(text, "\nA request of one of 10,000 clients through axum, in process.\n");
    let _ = writeln!(text, "| | ns | over no layer | allocations |\n| --- | ---: | ---: | ---: |");
    for (runner, time) in runners.iter_mut().zip(&times) {
        let (over, allocated) = (time - times[0], allocations(|| (runner.call)()));
        let _ = writeln!(text, "| {} | {time:.0} | {over:.0} | {allocated} |", runner.name);
    }
    text.push('\n');
    for (what, ours, theirs) in [("allowed", 2, 1), ("allowed, with headers", 4, 3), ("denied", 7, 6)] {
        let ratio = (times[ours] - times[0]) / (times[theirs] - times[0]);
        let holds = verdict(ratio <= 1.0);
        let _ = writeln!(text, "- overhead, {what}: {ratio:.2} × tower_governor's (bar: at most 1){holds}");
    }
}

fn handler() -> Router {
    Router::new().route("/api/search", get(|| async { "ok" }))
}

fn bare() -> Router {
    handler()
}

fn governor(burst: u32) -> Router {
    let mut config = GovernorConfigBuilder::default();
    let config = config.per_second(3_600).burst_size(burst).key_extractor(TheirPeer).finish();
    handler().layer(GovernorLayer::new(Arc::new(config.expect("a quota"))))
}

fn governor_with_headers() -> Router {
    let mut config = GovernorConfigBuilder::default();
    let config = config.per_second(3_600).burst_size(PLENTY).key_extractor(TheirPeer).use_headers().finish();
    handler().layer(GovernorLayer::new(Arc::new(config.expect("a quota"))))
}

fn ours(burst: u32, headers: HeaderStyle) -> Router {
    let layer = RateLimitLayer::builder()
        .per_second(3_600)
        .burst_size(burst)
        .key_extractor(PeerIpKeyExtractor)
        .use_headers(headers)
        .build();
    handler().layer(layer.expect("a layer"))
}

fn by_rules() -> Router {
    let limiter = RateLimiter::builder().build().expect("a limiter");
    let engine = Arc::new(Engine::local(Arc::new(limiter), rules(9_995)));
    let constant = |text: &'static str| move |_: &RequestView<'_>| Some(text.to_owned());
    let layer = RateLimitLayer::rules(engine)
        .attribute("ip", PeerIpKeyExtractor)
        .attribute("api_key", HeaderKeyExtractor::new(http::HeaderName::from_static("x-api-key")))
        .attribute("user", constant("ann"))
        .attribute("plan", constant("free"))
        .build();
    handler().layer(layer.expect("a layer"))
}

fn runner(name: &'static str, mut router: Router, expected: StatusCode) -> Runner {
    let mut calls = 0;
    let call = move || {
        calls += 1;
        let request = request(calls);
        let status = answer(&mut router, request);
        assert!(status == expected || calls <= CLIENTS, "{name}: {status}");
    };
    Runner { name, call: Box::new(call) }
}

fn request(calls: u32) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = http::Uri::from_static("/api/search");
    request.headers_mut().insert("x-api-key", http::HeaderValue::from_static("k-123"));
    let client = calls % CLIENTS;
    let [_, a, b, c] = client.to_be_bytes();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, a, b, c], 1_234))));
    request
}

/// Returns the status of the response. The future is polled once, because nothing in the service waits.
fn answer(router: &mut Router, request: Request<Body>) -> StatusCode {
    let mut context = Context::from_waker(Waker::noop());
    let response = pin!(Service::call(router, request));
    match response.poll(&mut context) {
        Poll::Ready(Ok(response)) => response.status(),
        Poll::Pending => panic!("a handler that waits"),
    }
}
