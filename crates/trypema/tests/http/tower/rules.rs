//! Layers that enforce a rule set.

use axum::Router;
use axum::extract::MatchedPath;
use axum::routing::get;
use http::{HeaderName, Method, Request};
use tower::ServiceExt;
use trypema::http::HeaderStyle;
use trypema::rules::Outcome;
use trypema::tower::{
    ByRules, Denial, HeaderKeyExtractor, PeerIpKeyExtractor, RateLimitLayer, RateLimitLayerBuilder,
    RequestView,
};

use super::scene::{answered_with, engine, request, request_from, rule_set, send, statuses, to, with_header};

fn header(name: &'static str) -> HeaderKeyExtractor {
    HeaderKeyExtractor::new(HeaderName::from_static(name))
}

fn by_rules(rules: &str) -> RateLimitLayerBuilder<ByRules> {
    RateLimitLayer::rules(engine(rules)).attribute("ip", PeerIpKeyExtractor)
}

const PLANS: &str = "
rules:
  - id: free
    scope: tenant
    key_pattern: '{api_key}'
    plan_tiers: [free]
    strategy: {fixed_window: {limit: 1, window: 1h}}
  - id: paid
    scope: tenant
    key_pattern: '{api_key}'
    plan_tiers: [paid]
    strategy: {fixed_window: {limit: 3, window: 1h}}
";

#[tokio::test]
async fn plans_have_limits_of_their_own() {
    let builder =
        by_rules(PLANS).attribute("plan", header("x-plan")).attribute("api_key", header("x-api-key"));
    let layer = builder.use_headers(HeaderStyle::Standard).build().unwrap();
    let by = |plan: &str, key: &str| with_header(with_header(request(), "x-plan", plan), "x-api-key", key);
    let requests = [by("free", "a"), by("free", "a"), by("free", "b"), by("paid", "a"), by("paid", "a")];
    assert_eq!(statuses(&layer, requests).await, [200, 429, 200, 200, 200]);

    let denied = send(&layer, by("free", "a")).await;
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["free"]));
    assert_eq!(denied.field("ratelimit-policy", ["q", "w"]), ("free".to_owned(), [1, 3_600]));
    assert_eq!(
        send(&layer, by("paid", "a")).await.field("ratelimit", ["r", "t"]),
        ("paid".to_owned(), [0, 2_000])
    );

    // No rule applies to a request without an API key, so there are no headers to send.
    let unknown = send(&layer, request()).await;
    assert!(unknown.status == 200 && unknown.headers.is_empty(), "{unknown:?}");
}

#[tokio::test]
async fn endpoint_and_method_are_known_by_themselves() {
    let layer = by_rules(
        "
        rules:
          - {id: login, scope: ip, endpoints: [POST /login], strategy: {fixed_window: {limit: 1, window: 1h}}}
          - {id: api, scope: endpoint, endpoints: [/api/**], strategy: {fixed_window: {limit: 2, window: 1h}}}
        ",
    );
    let layer = layer.build().unwrap();
    let by = |method: Method, path: &str| {
        let mut request = to(request(), path);
        *request.method_mut() = method;
        request
    };
    let login =
        [Method::GET, Method::POST, Method::POST, Method::GET].map(|method| by(method, "/login?next=/"));
    assert_eq!(statuses(&layer, login).await, [200, 200, 429, 200]);
    let paths = ["/api/a", "/api/b", "/api/c", "/other", "/other"].map(|path| by(Method::GET, path));
    assert_eq!(statuses(&layer, paths).await, [200, 200, 429, 200, 200]);
}

const TOKENS: &str = "
units: [tokens]
rules:
  - {id: requests, scope: ip, strategy: {fixed_window: {limit: 3, window: 1h}}}
  - {id: tokens, scope: ip, unit: tokens, if_missing: deny, strategy: {fixed_window: {limit: 100, window: 1h}}}
";

fn tokens() -> RateLimitLayerBuilder<ByRules> {
    let estimate =
        |request: &RequestView<'_>| request.headers.get("x-tokens")?.to_str().ok()?.parse::<u64>().ok();
    by_rules(TOKENS).unit_cost("tokens", estimate)
}

/// A request that the rule for tokens denies spends no request either.
#[tokio::test]
async fn a_request_may_cost_another_unit() {
    let by = |tokens: &str| with_header(request(), "x-tokens", tokens);
    let requests = ["60", "41", "40", "1", "0", "0"].map(by);
    assert_eq!(statuses(&tokens().build().unwrap(), requests).await, [200, 429, 200, 429, 200, 429]);

    let denied = send(&tokens().build().unwrap(), request()).await;
    assert_eq!((denied.status.as_u16(), denied.header("retry-after")), (429, None));
    assert_eq!(
        denied.json()["detail"],
        "The request has no cost in \"tokens\", which rule \"tokens\" counts."
    );
}

/// Both rules are refunded, each in its own unit.
#[tokio::test]
async fn other_units_are_refunded_and_charged_afterwards() {
    let by = |status: u16, tokens: &str| with_header(answered_with(status), "x-tokens", tokens);
    let refunding = tokens().refund_if(|response| response.status.is_server_error()).build().unwrap();
    let requests = [by(500, "90"), by(200, "90"), by(200, "11"), by(200, "10")];
    assert_eq!(statuses(&refunding, requests).await, [500, 200, 429, 200]);
    let charging = tokens().charge_if(|response| response.status == 200).build().unwrap();
    let requests = [by(404, "90"), by(200, "90"), by(404, "11"), by(200, "10"), by(404, "0")];
    assert_eq!(statuses(&charging, requests).await, [404, 200, 429, 200, 404]);
}

/// A unit that the rules do not declare is a mistake of the developer, which fails every request.
#[tokio::test]
async fn an_undeclared_unit_fails() {
    let layer = by_rules(TOKENS).unit_cost("token", |_: &RequestView<'_>| Some(1)).build().unwrap();
    assert_eq!(send(&layer, request()).await.status, 500);
}

/// The statuses that `router` returns for these paths, in order.
async fn routed(router: &Router, paths: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for path in paths {
        let request = Request::get(*path).body(axum::body::Body::empty()).unwrap();
        let Ok(response) = router.clone().oneshot(request).await;
        statuses.push(response.status().as_u16());
    }
    statuses
}

/// An extractor for an attribute overrides the built-in one, which is the fallback if the extractor finds
/// nothing.
#[tokio::test]
async fn an_endpoint_may_be_the_route_that_matched() {
    let rules = "rules: [{id: route, scope: endpoint, strategy: {fixed_window: {limit: 1, window: 1h}}}]";
    let route =
        |request: &RequestView<'_>| Some(request.extensions.get::<MatchedPath>()?.as_str().to_owned());
    let router = |layer| {
        let routes = Router::new().route("/users/{id}", get(|| async { "user" }));
        routes.fallback(|| async { "nothing" }).layer(layer)
    };
    let paths = ["/users/1", "/users/2", "/lost", "/found", "/lost"];
    let by_path = router(by_rules(rules).build().unwrap());
    assert_eq!(routed(&by_path, &paths).await, [200, 200, 200, 200, 429]);
    let by_route = router(by_rules(rules).attribute("endpoint", route).build().unwrap());
    assert_eq!(routed(&by_route, &paths).await, [200, 429, 200, 200, 429]);
}

/// A nested router sees only the rest of the path. The endpoint attribute is the whole path of the request.
#[cfg(feature = "axum")]
#[tokio::test]
async fn an_endpoint_is_the_whole_path() {
    let rules = "rules: [{id: api, scope: global, endpoints: [/api/**], strategy: {fixed_window: {limit: 1, window: 1h}}}]";
    let inside =
        Router::new().route("/search", get(|| async { "found" })).layer(by_rules(rules).build().unwrap());
    let router = Router::new().nest("/api", inside);
    assert_eq!(routed(&router, &["/api/search", "/api/search"]).await, [200, 429]);
}

/// A throttled request is answered with 429 and `Retry-After`, because HTTP has no other way to delay a
/// client.
#[tokio::test]
async fn a_throttled_request_is_told_to_wait() {
    let seen = |denial: &Denial<'_>| {
        assert_eq!(denial.verdict().unwrap().outcome(), Outcome::Throttled);
        denial.to_http_response()
    };
    let rules = "
        rules:
          - id: slow
            scope: ip
            action: throttle
            max_delay: 5s
            strategy: {token_bucket: {limit: 1, window: 4s}}
        ";
    let layer = by_rules(rules).error_handler(seen).build().unwrap();
    assert_eq!(send(&layer, request()).await.status, 200);
    let throttled = send(&layer, request()).await;
    assert_eq!((throttled.status.as_u16(), throttled.header("retry-after")), (429, Some("4")));
}

#[tokio::test]
async fn what_only_logs_lets_pass_and_stays_unseen() {
    let rules = "
        rules:
          - {id: shadow, scope: ip, action: log_only, strategy: {fixed_window: {limit: 1, window: 1h}}}
          - {id: real, scope: ip, strategy: {fixed_window: {limit: 2, window: 1h}}}
        ";
    let layer = by_rules(rules).use_headers(HeaderStyle::Standard).build().unwrap();
    for left in [1, 0] {
        let answer = send(&layer, request()).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("ratelimit", ["r", "t"]), ("real".to_owned(), [left, 2_000]));
    }
    let denied = send(&layer, request()).await;
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["real"]));
    assert_eq!(denied.field("ratelimit-policy", ["q", "w"]).0, "real");
}

#[tokio::test]
async fn lists_decide_before_rules() {
    let rules = "
        rules: [{id: r, scope: ip, strategy: {fixed_window: {limit: 1, window: 1h}}}]
        allow: {ip: [192.0.2.8]}
        block: {ip: [192.0.2.9]}
        ";
    let layer = by_rules(rules).use_headers(HeaderStyle::Standard).build().unwrap();
    let friend = (0..3).map(|_| request_from("192.0.2.8"));
    assert_eq!(statuses(&layer, friend).await, [200; 3]);
    let blocked = send(&layer, request_from("192.0.2.9")).await;
    assert_eq!((blocked.status.as_u16(), blocked.header("retry-after")), (403, None));
    let problem = blocked.json();
    assert_eq!(
        (&problem["detail"], problem.get("violated-policies")),
        (&"An operator blocked this client.".into(), None)
    );
    assert!(!blocked.body.contains("192.0.2.9"));
}

#[tokio::test]
async fn an_override_may_block_a_key() {
    let rules = "
        rules: [{id: r, scope: ip, strategy: {fixed_window: {limit: 1, window: 1h}}}]
        overrides:
          - {rule: r, key: {ip: 192.0.2.9}, verdict: block}
          - {rule: r, key: {ip: 192.0.2.8}, strategy: {fixed_window: {limit: 2, window: 1h}}}
        ";
    let layer = by_rules(rules).use_headers(HeaderStyle::XRateLimit).build().unwrap();
    let blocked = send(&layer, request_from("192.0.2.9")).await;
    assert_eq!((blocked.status.as_u16(), blocked.header("retry-after")), (403, None));
    // A block has no reset time, so none is sent.
    assert_eq!(blocked.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(blocked.header("x-ratelimit-reset"), None);
    let standard = by_rules(rules).use_headers(HeaderStyle::Standard).build().unwrap();
    let blocked = send(&standard, request_from("192.0.2.9")).await;
    assert_eq!(blocked.header("ratelimit"), Some("\"r\";r=0"));
    let special = send(&layer, request_from("192.0.2.8")).await;
    assert_eq!((special.status.as_u16(), special.header("x-ratelimit-limit")), (200, Some("2")));
}

/// The response describes the tightest rule, and a denial by one rule spends nothing on the others.
#[tokio::test]
async fn rules_are_asked_together() {
    let rules = "
        rules:
          - {id: ip, scope: ip, priority: 1, strategy: {fixed_window: {limit: 2, window: 1h}}}
          - {id: all, scope: global, priority: 2, strategy: {fixed_window: {limit: 3, window: 1h}}}
        ";
    let layer = by_rules(rules).use_headers(HeaderStyle::XRateLimit).build().unwrap();
    let requests = ["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2"].map(request_from);
    assert_eq!(statuses(&layer, requests).await, [200, 200, 429, 200, 429]);
    let denied = send(&layer, request_from("192.0.2.1")).await;
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["ip", "all"]));
}

#[tokio::test]
async fn rules_can_be_replaced_while_the_layer_runs() {
    let engine = engine("rules: [{id: r, scope: ip, strategy: {fixed_window: {limit: 1, window: 1h}}}]");
    let layer = RateLimitLayer::rules(engine.clone()).attribute("ip", PeerIpKeyExtractor).build().unwrap();
    assert_eq!(statuses(&layer, [request(), request()]).await, [200, 429]);
    engine.replace(rule_set("rules: [{id: r, scope: ip, strategy: {fixed_window: {limit: 2, window: 1h}}}]"));
    assert_eq!(statuses(&layer, [request(), request()]).await, [200, 429]);
}

/// An attribute may have several extractors: the first one that finds a value is used.
#[tokio::test]
async fn the_first_of_a_name_that_is_there_counts() {
    let rules = "rules: [{id: r, scope: user, strategy: {fixed_window: {limit: 1, window: 1h}}}]";
    let builder = RateLimitLayer::rules(engine(rules));
    let layer =
        builder.attribute("user", header("x-user")).attribute("user", PeerIpKeyExtractor).build().unwrap();
    let ann = || with_header(request(), "x-user", "ann");
    assert_eq!(statuses(&layer, [ann(), request(), ann(), request()]).await, [200, 200, 429, 429]);
}

#[tokio::test]
async fn costs_and_exceptions_hold_for_rules() {
    let rules = "rules: [{id: r, scope: ip, strategy: {fixed_window: {limit: 3, window: 1h}}}]";
    let layer = by_rules(rules).cost(|_| 2).skip(|request| request.uri.path() == "/health").build().unwrap();
    let requests = [request(), request(), to(request(), "/health")];
    assert_eq!(statuses(&layer, requests).await, [200, 429, 200]);
    let layer = by_rules(rules).cost(|_| 4).build().unwrap();
    let never = send(&layer, request()).await;
    assert_eq!((never.status.as_u16(), never.header("retry-after")), (429, None));
}
