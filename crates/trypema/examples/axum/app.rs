//! The routes of the API, and its rate limits.

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use http::HeaderName;
use trypema::RateLimiter;
use trypema::http::HeaderStyle;
use trypema::rules::{Engine, RuleSet};
use trypema::tower::{HeaderKeyExtractor, PeerIpKeyExtractor, RateLimitLayer, RequestView};

const RULES: &str = include_str!("rules.yaml");

/// Returns an engine with the rules of this example.
pub(crate) fn engine(limiter: RateLimiter) -> Result<Arc<Engine>, Box<dyn std::error::Error>> {
    let rules = RuleSet::from_yaml(RULES, "rules.yaml")?;
    Ok(Arc::new(Engine::local(Arc::new(limiter), rules)))
}

/// Returns the API, behind a layer that enforces the rules of `engine`.
pub(crate) fn app(engine: Arc<Engine>) -> Result<Router, Box<dyn std::error::Error>> {
    let limits = RateLimitLayer::rules(engine)
        .attribute("ip", PeerIpKeyExtractor)
        .attribute("api_key", HeaderKeyExtractor::new(HeaderName::from_static("x-api-key")))
        .attribute("plan", plan)
        .cost(|request| if request.uri.path() == "/export" { 5 } else { 1 })
        .skip(|request| request.uri.path() == "/healthz")
        .use_headers(HeaderStyle::Standard)
        .build()?;
    Ok(Router::new()
        .route("/search", get(|| async { "three results\n" }))
        .route("/export", get(|| async { "id,name\n" }))
        .route("/reports/{month}", get(|| async { "a report\n" }))
        .route("/feed", get(|| async { "nothing new\n" }))
        .route("/events", post(|| async { "noted\n" }))
        .route("/verify", post(|| async { "that is not the code\n" }))
        .route("/healthz", get(|| async { "ok\n" }))
        .layer(limits))
}

/// Returns the plan of an API key. A real service would look it up during authentication and store it in the
/// request's extensions.
fn plan(request: &RequestView<'_>) -> Option<String> {
    let key = request.headers.get("x-api-key")?.to_str().ok()?;
    let plan = if key.starts_with("pro-") { "pro" } else { "free" };
    Some(plan.to_owned())
}
