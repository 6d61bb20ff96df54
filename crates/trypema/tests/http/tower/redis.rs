//! Counters in Redis: the same cases as on the local provider, and the responses while Redis fails.

use std::sync::Arc;
use std::time::Duration;

use trypema::RateLimiter;
use trypema::http::HeaderStyle;
use trypema::redis::OnFailure;
use trypema::rules::Engine;
use trypema::tower::{
    ByLimit, ByRules, PeerIpKeyExtractor, RateLimitLayer, RateLimitLayerBuilder, RequestView,
};
use trypema_testkit::redis::Server;

use super::charging::{GUESSES, HOURLY, failures_of_the_server_are_free, only_failures_count};
use super::scene::{grpc_call, guesses, hourly, request, request_from, rule_set, send, statuses, to};
use super::service::respects_readiness;

/// No test here depends on the deadline. It is long because a busy machine is slow.
const DEADLINE: Duration = Duration::from_secs(20);

async fn limiter(server: &Server, on_failure: OnFailure) -> Arc<RateLimiter> {
    let connection = trypema_testkit::blocking::dial(&server.url()).await;
    let builder = RateLimiter::builder().redis(connection).redis_deadline(DEADLINE);
    Arc::new(builder.on_redis_failure(on_failure).build().unwrap())
}

fn by_limit(limiter: &Arc<RateLimiter>) -> RateLimitLayerBuilder<ByLimit> {
    RateLimitLayer::builder().limit(hourly(2)).redis(limiter.clone()).name("hourly")
}

fn by_rules(limiter: &Arc<RateLimiter>, rules: &str) -> RateLimitLayerBuilder<ByRules> {
    let engine = Arc::new(Engine::redis(limiter.clone(), rule_set(rules)));
    RateLimitLayer::rules(engine).attribute("ip", PeerIpKeyExtractor)
}

#[tokio::test]
async fn a_limit_is_shared_through_redis() {
    let server = Server::start().unwrap();
    let layer = by_limit(&limiter(&server, OnFailure::Fail).await).use_headers(HeaderStyle::Standard);
    let layer = layer.build().unwrap();
    let elsewhere = by_limit(&limiter(&server, OnFailure::Fail).await).build().unwrap();
    let welcome = send(&layer, request()).await;
    assert_eq!(welcome.status, 200);
    assert_eq!(welcome.field("ratelimit", ["r", "t"]).1[0], 1);
    assert_eq!(statuses(&elsewhere, [request(), request()]).await, [200, 429]);
    let denied = send(&layer, request()).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["hourly"]));
    let wait: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3_600).contains(&wait));
    assert_eq!(send(&layer, request_from("192.0.2.2")).await.status, 200);
}

#[tokio::test]
async fn rules_are_shared_through_redis() {
    let server = Server::start().unwrap();
    let rl = limiter(&server, OnFailure::Fail).await;
    let layer = by_rules(&rl, HOURLY).use_headers(HeaderStyle::XRateLimit).build().unwrap();
    assert_eq!(statuses(&layer, [request(), request(), request()]).await, [200, 200, 429]);
    let other = send(&layer, request_from("192.0.2.2")).await;
    assert_eq!((other.status.as_u16(), other.header("x-ratelimit-remaining")), (200, Some("1")));
    // Without an applicable rule, the layer does not call Redis.
    server.kill_9().unwrap();
    let layer = by_rules(&rl, "rules: []").build().unwrap();
    assert_eq!(send(&layer, request()).await.status, 200);
}

#[tokio::test]
async fn keys_of_any_kind_are_keys_of_redis() {
    let server = Server::start().unwrap();
    let query = |request: &RequestView<'_>| request.uri.query().map(str::to_owned);
    let builder = by_limit(&limiter(&server, OnFailure::Fail).await);
    let layer = builder.cost(|_| 2).key_extractor(query).build().unwrap();
    let long = format!("/?{}", "k".repeat(10_000));
    let keys = ["/?", "/?a:b", "/?{}", "/?|", long.as_str()];
    assert_eq!(statuses(&layer, keys.map(|key| to(request(), key))).await, [200; 5]);
    assert_eq!(statuses(&layer, keys.map(|key| to(request(), key))).await, [429; 5]);
}

#[tokio::test]
async fn failures_only_and_refunds_on_redis() {
    let server = Server::start().unwrap();
    let rl = limiter(&server, OnFailure::Fail).await;
    let is_wrong = |response: &trypema::tower::ResponseView<'_>| response.status == 401;
    let is_failure = |response: &trypema::tower::ResponseView<'_>| response.status.is_server_error();

    let guard = RateLimitLayer::builder().limit(guesses()).redis(rl.clone()).name("guesses");
    only_failures_count(&guard.charge_if(is_wrong).build().unwrap()).await;
    failures_of_the_server_are_free(&by_limit(&rl).refund_if(is_failure).build().unwrap()).await;
    only_failures_count(
        &by_rules(&rl, &GUESSES.replace("id: guesses", "id: rule")).charge_if(is_wrong).build().unwrap(),
    )
    .await;
    let rules = HOURLY.replace("id: hourly", "id: rule");
    failures_of_the_server_are_free(&by_rules(&rl, &rules).refund_if(is_failure).build().unwrap()).await;
}

#[tokio::test]
async fn the_service_that_was_made_ready_is_called_after_redis() {
    let server = Server::start().unwrap();
    let rl = limiter(&server, OnFailure::Fail).await;
    respects_readiness(&by_limit(&rl).build().unwrap(), 2).await;
    respects_readiness(&by_rules(&rl, HOURLY).build().unwrap(), 2).await;
}

/// A failure of Redis is never reported as the client's fault.
#[tokio::test]
async fn a_redis_that_is_away_is_503() {
    for on_failure in [OnFailure::Fail, OnFailure::Deny] {
        let server = Server::start().unwrap();
        let rl = limiter(&server, on_failure).await;
        server.kill_9().unwrap();
        let is_failure = |response: &trypema::tower::ResponseView<'_>| response.status.is_server_error();
        let layers = [
            by_limit(&rl).use_headers(HeaderStyle::Standard).build().unwrap(),
            by_limit(&rl).use_headers(HeaderStyle::XRateLimit).build().unwrap(),
            by_limit(&rl).charge_if(is_failure).build().unwrap(),
            by_limit(&rl).refund_if(is_failure).build().unwrap(),
            by_rules(&rl, HOURLY).use_headers(HeaderStyle::Standard).build().unwrap(),
            by_rules(&rl, HOURLY).charge_if(is_failure).build().unwrap(),
            by_rules(&rl, HOURLY).refund_if(is_failure).build().unwrap(),
        ];
        for layer in layers {
            let answer = send(&layer, request()).await;
            assert_eq!(
                (answer.status.as_u16(), answer.header("retry-after")),
                (503, Some("1")),
                "{on_failure:?}"
            );
            let problem = answer.json();
            assert!(problem["type"].as_str().unwrap().ends_with("temporary-reduced-capacity"), "{problem}");
            assert!(!answer.body.contains("127.0.0.1"), "{}", answer.body);
            // No units were counted, so the response has no rate limit headers and names no violated policy.
            assert_eq!(problem.get("violated-policies"), None, "{on_failure:?}");
            assert!(!answer.headers.keys().any(|name| name.as_str().contains("ratelimit")), "{answer:?}");

            let status = send(&layer, grpc_call()).await;
            assert_eq!((status.status.as_u16(), status.header("grpc-status")), (200, Some("14")));
        }
    }
}

#[tokio::test]
async fn a_redis_that_is_away_may_be_made_light_of() {
    let server = Server::start().unwrap();
    let rl = limiter(&server, OnFailure::Allow).await;
    server.kill_9().unwrap();
    let style = HeaderStyle::Standard;
    let layers = [
        by_limit(&rl).use_headers(style).build().unwrap(),
        by_limit(&rl).refund_if(|_| true).build().unwrap(),
        by_limit(&rl).charge_if(|_| true).build().unwrap(),
        by_rules(&rl, HOURLY).use_headers(style).build().unwrap(),
        by_rules(&rl, HOURLY).refund_if(|_| true).build().unwrap(),
        by_rules(&rl, HOURLY).charge_if(|_| true).build().unwrap(),
    ];
    for layer in layers {
        assert_eq!(statuses(&layer, (0..4).map(|_| request())).await, [200; 4]);
    }
}

/// A cost above the limit is denied without Redis.
#[tokio::test]
async fn a_cost_that_never_fits_is_429_without_redis() {
    for on_failure in [OnFailure::Allow, OnFailure::Deny] {
        let server = Server::start().unwrap();
        let rl = limiter(&server, on_failure).await;
        server.kill_9().unwrap();
        for layer in [by_limit(&rl).cost(|_| 3).build(), by_rules(&rl, HOURLY).cost(|_| 3).build()] {
            let answer = send(&layer.unwrap(), request()).await;
            assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (429, None), "{on_failure:?}");
            assert_eq!(answer.json()["violated-policies"], serde_json::json!(["hourly"]));
        }
    }
}

/// `on_store_failure` of a rule overrides the limiter's policy.
#[tokio::test]
async fn a_rule_may_choose_what_a_failure_means() {
    let server = Server::start().unwrap();
    let rl = limiter(&server, OnFailure::Fail).await;
    server.kill_9().unwrap();
    for (choice, expected) in [("allow", 200), ("deny", 503), ("error", 503)] {
        let rules = format!(
            "rules: [{{id: r, scope: ip, on_store_failure: {choice}, strategy: {{fixed_window: {{limit: 1, window: 1h}}}}}}]"
        );
        let layer = by_rules(&rl, &rules).build().unwrap();
        assert_eq!(send(&layer, request()).await.status, expected, "{choice}");
    }
}

/// If Redis fails after the response, the charge or refund is lost, but the response is sent unchanged.
#[tokio::test]
async fn a_failure_after_the_response_does_not_change_it() {
    for is_refunding in [true, false] {
        let server = Server::start().unwrap();
        let rl = limiter(&server, OnFailure::Fail).await;
        let server = Arc::new(server);
        let layer = match is_refunding {
            true => by_limit(&rl).refund_if(|_| true).build().unwrap(),
            false => by_limit(&rl).charge_if(|_| true).build().unwrap(),
        };
        let killing = tower::service_fn(|_: http::Request<()>| {
            let server = server.clone();
            async move {
                server.kill_9().unwrap();
                Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::from("done")))
            }
        });
        let answer = super::scene::answer_of(tower::Layer::layer(&layer, killing), request()).await;
        assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "done"));
    }
}
