//! Requests that are charged after their response, or refunded. `redis.rs` runs the same cases on Redis.

use std::sync::Arc;

use trypema::http::HeaderStyle;
use trypema::tower::{ByLimit, ByRules, PeerIpKeyExtractor, RateLimitLayer, RateLimitLayerBuilder};

use super::scene::{
    answer_of, answered_with, engine, guesses, hourly_layer, limiter, request, request_from, send, statuses,
    with_header,
};

/// Three failures within ten minutes block for ten minutes: the same limits as [`guesses`].
pub(crate) const GUESSES: &str = "
rules:
  - id: guesses
    scope: ip
    strategy:
      abuse:
        temp: {window: 10m, threshold: 3, block: 10m}
        long: {window: 24h, threshold: 10, block: 24h}
";

/// Two requests an hour per address, and ten an hour for all clients together.
pub(crate) const HOURLY: &str = "
rules:
  - {id: hourly, scope: ip, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: all, scope: global, strategy: {fixed_window: {limit: 10, window: 1h}}}
";

fn by_limit() -> RateLimitLayerBuilder<ByLimit> {
    RateLimitLayer::builder().limit(guesses()).limiter(limiter().0).name("guesses")
}

fn by_rules(rules: &str) -> RateLimitLayerBuilder<ByRules> {
    RateLimitLayer::rules(engine(rules)).attribute("ip", PeerIpKeyExtractor)
}

/// Wrong passwords are counted and right ones are not. After the third wrong password, even the right one is
/// denied.
pub(crate) async fn only_failures_count(layer: &RateLimitLayer) {
    let (wrong, right) = (|| answered_with(401), || answered_with(200));
    let attempts = [wrong(), right(), wrong(), right(), right(), right(), wrong(), wrong(), right()];
    assert_eq!(statuses(layer, attempts).await, [401, 200, 401, 200, 200, 200, 401, 429, 429]);
    let blocked = send(layer, right()).await;
    let wait: u64 = blocked.header("retry-after").unwrap().parse().unwrap();
    assert!((590..=600).contains(&wait), "{wait}");
    assert!(blocked.json()["type"].as_str().unwrap().ends_with("abnormal-usage-detected"));
    assert_eq!(send(layer, request_from("192.0.2.2")).await.status, 200, "somebody else");
}

/// Only responses with a server error are refunded.
pub(crate) async fn failures_of_the_server_are_free(layer: &RateLimitLayer) {
    let answers = [500, 502, 200, 503, 404].map(answered_with);
    assert_eq!(statuses(layer, answers).await, [500, 502, 200, 503, 404]);
    assert_eq!(send(layer, answered_with(500)).await.status, 429, "both are spent");
}

#[tokio::test]
async fn a_limit_on_failures_only() {
    only_failures_count(&by_limit().charge_if(|response| response.status == 401).build().unwrap()).await;
}

#[tokio::test]
async fn rules_on_failures_only() {
    let layer = by_rules(GUESSES).charge_if(|response| response.status == 401).build().unwrap();
    only_failures_count(&layer).await;
}

#[tokio::test]
async fn a_limit_with_refunds() {
    let layer = hourly_layer(2).refund_if(|response| response.status.is_server_error()).build().unwrap();
    failures_of_the_server_are_free(&layer).await;
}

#[tokio::test]
async fn rules_with_refunds() {
    let layer = by_rules(HOURLY).refund_if(|response| response.status.is_server_error()).build().unwrap();
    failures_of_the_server_are_free(&layer).await;
}

/// For a limit without blocks, the layer peeks with the whole cost. A request that could not be charged does
/// not run.
#[tokio::test]
async fn what_could_not_be_charged_is_not_let_in() {
    let layer = hourly_layer(3).cost(|_| 2).charge_if(|response| response.status != 204).build().unwrap();
    let answers = [204, 204, 200, 204].map(answered_with);
    assert_eq!(statuses(&layer, answers).await, [204, 204, 200, 429]);
}

#[tokio::test]
async fn headers_tell_what_is_left_after_charging() {
    let style = HeaderStyle::XRateLimit;
    let layer =
        hourly_layer(5).charge_if(|response| response.status == 401).use_headers(style).build().unwrap();
    let rules = by_rules("rules: [{id: r, scope: ip, strategy: {fixed_window: {limit: 5, window: 1h}}}]");
    let rules = rules.charge_if(|response| response.status == 401).use_headers(style).build().unwrap();
    for layer in [layer, rules] {
        let mut left = Vec::new();
        for status in [401, 401, 200, 401] {
            let answer = send(&layer, answered_with(status)).await;
            left.push(answer.header("x-ratelimit-remaining").unwrap().to_owned());
        }
        // The third response shows the units that a charge would have left, but it is not charged.
        assert_eq!(left, ["4", "3", "2", "2"]);
    }
}

/// The predicate receives the version, headers and extensions of the response, not only the status.
#[tokio::test]
async fn a_response_is_seen_whole() {
    let layer = hourly_layer(1).refund_if(|response| {
        response.version == http::Version::HTTP_11
            && response.headers.is_empty()
            && response.extensions.is_empty()
    });
    let layer = layer.build().unwrap();
    let requests = [request(), with_header(request(), "x-any", "1"), request()];
    assert_eq!(statuses(&layer, requests).await, [200, 200, 200]);
}

/// Concurrent failures are each counted by every rule, even if another rule is exhausted by then.
#[tokio::test]
async fn what_has_happened_is_counted_by_each_rule() {
    let rules = "
        rules:
          - {id: ip, scope: ip, strategy: {fixed_window: {limit: 2, window: 1h}}}
          - id: account
            scope: global
            strategy:
              abuse:
                temp: {window: 10m, threshold: 5, block: 10m}
                long: {window: 24h, threshold: 50, block: 24h}
        ";
    let layer = by_rules(rules).charge_if(|response| response.status == 401).build().unwrap();
    let everybody_in = Arc::new(tokio::sync::Barrier::new(5));
    let wrong = tower::service_fn(move |_: http::Request<()>| {
        let everybody_in = everybody_in.clone();
        async move {
            everybody_in.wait().await;
            let response = http::Response::builder().status(401).body(http_body_util::Full::from(""));
            Ok::<_, std::convert::Infallible>(response.unwrap())
        }
    });
    let service = tower::Layer::layer(&layer, wrong);
    let attempts = (0..5).map(|_| tokio::spawn(answer_of(service.clone(), request())));
    for attempt in attempts.collect::<Vec<_>>() {
        assert_eq!(attempt.await.unwrap().status, 401);
    }
    let blocked = send(&layer, request_from("192.0.2.2")).await;
    assert_eq!((blocked.status.as_u16(), blocked.header("retry-after")), (429, Some("600")));
}
