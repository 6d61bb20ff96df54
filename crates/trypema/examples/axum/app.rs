//! The API and its limits.

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use http::HeaderName;
use trypema::RateLimiter;
use trypema::http::HeaderStyle;
use trypema::rules::{Engine, RuleSet};
use trypema::tower::{HeaderKeyExtractor, Incoming, PeerIpKeyExtractor, RateLimitLayer};

const RULES: &str = include_str!("rules.yaml");

/// The rules of the example, in force.
pub(crate) fn engine(limiter: RateLimiter) -> Result<Arc<Engine>, Box<dyn std::error::Error>> {
    let rules = RuleSet::from_yaml(RULES, "rules.yaml")?;
    Ok(Arc::new(Engine::local(Arc::new(limiter), rules)))
}

/// The API, with `engine` before it.
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

/// The plan of a key. A real service would have looked it up when it authenticated the caller, and put it into the
/// request's extensions.
fn plan(request: &Incoming<'_>) -> Option<String> {
    let key = request.headers.get("x-api-key")?.to_str().ok()?;
    let plan = if key.starts_with("pro-") { "pro" } else { "free" };
    Some(plan.to_owned())
}
