//! The gateway: reserves what a completion may cost, and settles what it did cost.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use http::{HeaderName, StatusCode, header};
use serde_json::Value;
use tower::ServiceExt;
use trypema::RateLimiter;
use trypema::http::HeaderStyle;
use trypema::rules::{Engine, RuleSet};
use trypema::tower::{HeaderKeyExtractor, RateLimitLayer, RequestView, ReservationHandle};

use super::metered::Metered;

const RULES: &str = include_str!("rules.yaml");

/// The longest request and the longest response that is not a stream, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The tokens of the answer if the client sets no `max_tokens`.
const DEFAULT_MAX_TOKENS: u64 = 100;

/// The tokens of a prompt, and the most that the answer may have.
#[derive(Clone, Copy)]
struct Estimate {
    prompt: u64,
    answer: u64,
}

/// Returns an engine with the rules of this example.
pub(crate) fn engine(limiter: RateLimiter) -> Result<Arc<Engine>, Box<dyn std::error::Error>> {
    let rules = RuleSet::from_yaml(RULES, "rules.yaml")?;
    Ok(Arc::new(Engine::local(Arc::new(limiter), rules)))
}

/// Returns the gateway in front of `model`.
pub(crate) fn app(engine: Arc<Engine>, model: Router) -> Result<Router, Box<dyn std::error::Error>> {
    let estimated = |request: &RequestView<'_>| {
        let estimate = request.extensions.get::<Estimate>()?;
        Some(estimate.prompt + estimate.answer)
    };
    let limits = RateLimitLayer::rules(engine)
        .attribute("user", HeaderKeyExtractor::new(HeaderName::from_static("x-api-key")))
        .unit_cost("tokens", estimated)
        .reserve(Duration::from_secs(120))
        .refund_if(|response| response.status.is_server_error())
        .use_headers(HeaderStyle::Standard)
        .build()?;
    // The layer that is added last is called first.
    let complete = post(complete).layer(limits).layer(from_fn(estimate));
    Ok(Router::new().route("/v1/chat/completions", complete).with_state(model))
}

/// Estimates a request by its body, which the limits do not see.
async fn estimate(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, MAX_BYTES).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let Ok(json) = serde_json::from_slice::<Value>(&bytes) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    // About four characters are a token.
    let prompt = json["messages"].to_string().len().div_ceil(4) as u64;
    let answer = json["max_tokens"].as_u64().unwrap_or(DEFAULT_MAX_TOKENS);
    parts.extensions.insert(Estimate { prompt, answer: answer.min(MAX_BYTES as u64) });
    next.run(Request::from_parts(parts, Body::from(bytes))).await
}

/// Sends a request to the model, and settles what the model reports.
async fn complete(
    State(model): State<Router>,
    Extension(reservation): Extension<ReservationHandle>,
    Extension(Estimate { prompt, .. }): Extension<Estimate>,
    request: Request,
) -> Result<Response, StatusCode> {
    // If the client leaves before the model answers, it pays for the prompt.
    settle(&reservation, prompt);
    // A real gateway calls an HTTP client here.
    let Ok(response) = model.oneshot(request).await;
    if response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream") {
        return Ok(response.map(|body| Body::new(Metered::new(body, prompt, reservation))));
    }
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, MAX_BYTES).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    let json: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if let Some(tokens) = json["usage"]["total_tokens"].as_u64() {
        settle(&reservation, tokens);
    }
    Ok(Response::from_parts(parts, Body::from(bytes)))
}

/// Sets the cost so far. The layer counts what was set last when the response has ended.
pub(crate) fn settle(reservation: &ReservationHandle, tokens: u64) {
    if let Err(error) = reservation.settle_at(&[("tokens", tokens)]) {
        eprintln!("cannot settle: {error}");
    }
}
