//! Paths that servers read in different ways, and methods in other cases.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use tower::{Layer, service_fn};
use trypema::TrypemaError;
use trypema::rules::Engine;
use trypema::tower::{KeyExtractor, PathKeyExtractor, RateLimitLayer, RequestView};

use super::scene::{answer_of, engine, grpc_call, hourly_layer, request, send, statuses, to, welcome};

const LOGIN: &str = "
rules:
  - {id: login, scope: global, endpoints: [POST /login], strategy: {fixed_window: {limit: 1, window: 1h}}}
block: {endpoint: [/secret]}
";

/// Paths with dot segments, of which each is `/login` to some server.
const DOTS: [&str; 7] = [
    "/api//../login",
    "/a%2Fb/../login",
    r"/x\..\login",
    "/login//..",
    "/files%2F..%2Flogin",
    "/x/%2e%2E/login",
    "/login/.?x=1",
];

/// The same without dot segments.
const OTHERS: [&str; 4] = ["//x/login", "/%6cogin/", "//login?x", "/%6Cogin"];

fn post(path: &str, method: &str) -> Request<()> {
    let mut request = to(request(), path);
    *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
    request
}

fn rules_engine() -> Arc<Engine> {
    engine(LOGIN)
}

#[tokio::test]
async fn dot_segments_are_refused() {
    let layer = RateLimitLayer::rules(rules_engine()).skip(|_| true).build().unwrap();
    let one_limit = hourly_layer(1).build().unwrap();
    for path in DOTS {
        for layer in [&layer, &one_limit] {
            let refused = send(layer, post(path, "POST")).await;
            assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{path}");
            assert_eq!(refused.json()["detail"], TrypemaError::DotSegments.to_string());
            assert_eq!(refused.header("retry-after"), None);
        }
    }
    assert_eq!(statuses(&one_limit, [request(), request()]).await, [200, 429], "nothing was spent");
    let reserving = RateLimitLayer::rules(rules_engine()).reserve(Duration::from_secs(9)).build().unwrap();
    let refused = answer_of(reserving.layer(service_fn(welcome)), to(request(), DOTS[0])).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let refused = send(&one_limit, to(grpc_call(), "/pkg.Service/../Method")).await;
    assert_eq!((refused.status, refused.header("grpc-status")), (StatusCode::OK, Some("3")));
    let other_methods = hourly_layer(1).methods([Method::PUT]).build().unwrap();
    assert_eq!(send(&other_methods, post("/x/../y", "GET")).await.status, 200);
}

#[tokio::test]
async fn a_layer_that_accepts_dot_segments_applies_rules_to_every_reading() {
    for path in DOTS.into_iter().chain(OTHERS) {
        let layer = RateLimitLayer::rules(rules_engine()).accept_dot_segments().build().unwrap();
        let requests = [post(path, "POST"), post("/login", "POST")];
        assert_eq!(statuses(&layer, requests).await, [200, 429], "{path}");
        let blocked =
            path.replace("login", "secret").replace("%6cogin", "secret").replace("%6Cogin", "secret");
        assert_eq!(send(&layer, post(&blocked, "GET")).await.status, StatusCode::FORBIDDEN, "{blocked}");
        let refused = send(&layer, post(r"/a%2Fb//../c\d", "GET")).await;
        let ambiguous = TrypemaError::AmbiguousPath { max_readings: 6 };
        assert_eq!(
            (refused.status, &refused.json()["detail"]),
            (StatusCode::BAD_REQUEST, &ambiguous.to_string().into())
        );
    }
}

#[tokio::test]
async fn a_method_in_any_case_is_the_same_method() {
    let layer = RateLimitLayer::rules(rules_engine()).build().unwrap();
    let requests = ["post", "POST", "Post", "GET"].map(|method| post("/login", method));
    assert_eq!(statuses(&layer, requests).await, [200, 429, 429, 200]);
    let layer = hourly_layer(1).methods([Method::POST]).build().unwrap();
    let requests = ["post", "POST", "GET"].map(|method| post("/login", method));
    assert_eq!(statuses(&layer, requests).await, [200, 429, 200]);
}

#[test]
fn spellings_of_a_path_are_one_key() {
    for (path, key) in [
        ("/login", "/login"),
        ("//login/", "/login"),
        ("/%6cogin?x", "/login"),
        ("/a%2Fb", "/a/b"),
        ("/", "/"),
        ("//", "/"),
        ("/users/1", "/users/1"),
    ] {
        let request = to(request(), path);
        let extracted = PathKeyExtractor.extract(&RequestView::of(&request)).unwrap();
        assert_eq!(extracted.as_str(), key, "{path}");
    }
}
