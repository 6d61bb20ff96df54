//! The upload endpoint, and its limits.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::{HeaderName, StatusCode};
use http_body_util::BodyExt;
use trypema::RateLimiter;
use trypema::rules::{Engine, RuleSet};
use trypema::tower::{HeaderKeyExtractor, RateLimitLayer};

const RULES: &str = include_str!("rules.yaml");

/// The time for which an upload waits until others have ended.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Returns an engine with the rules of this example.
pub(crate) fn engine(limiter: RateLimiter) -> Result<Arc<Engine>, Box<dyn std::error::Error>> {
    let rules = RuleSet::from_yaml(RULES, "rules.yaml")?;
    Ok(Arc::new(Engine::local(Arc::new(limiter), rules)))
}

/// Returns the API. A request holds its slots until its response has ended, or its client has gone away.
pub(crate) fn app(engine: Arc<Engine>) -> Result<Router, Box<dyn std::error::Error>> {
    let limits = RateLimitLayer::rules(engine)
        .attribute("user", HeaderKeyExtractor::new(HeaderName::from_static("x-user")))
        .reserve(Duration::from_secs(60))
        .wait(PATIENCE)
        .build()?;
    Ok(Router::new().route("/upload", post(upload)).layer(limits))
}

/// Reads a file, and only counts its bytes.
async fn upload(mut file: Body) -> Result<String, StatusCode> {
    let mut bytes = 0;
    while let Some(frame) = file.frame().await {
        let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
        bytes += frame.data_ref().map_or(0, |data| data.len());
    }
    Ok(format!("stored {bytes} bytes\n"))
}
