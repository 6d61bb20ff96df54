//! A login route, and a layer that limits failed logins.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderMap};
use trypema::tower::{RateLimitLayer, RequestView};
use trypema::{AbuseLimit, AbuseTier, RateLimiter};

/// Returns the login route behind a layer that counts responses with status 401.
pub(crate) fn app(limiter: RateLimiter) -> Result<Router, Box<dyn std::error::Error>> {
    let minute = AbuseTier::new(Duration::from_secs(60), 3, Duration::from_secs(600))?;
    let hour = AbuseTier::new(Duration::from_secs(3_600), 10, Duration::from_secs(86_400))?;
    let guard = RateLimitLayer::builder()
        .limiter(Arc::new(limiter))
        .limit(AbuseLimit::new(minute, hour))
        .name("login")
        .key_extractor(account)
        .charge_if(|response| response.status == StatusCode::UNAUTHORIZED)
        .build()?;
    Ok(Router::new().route("/login", post(login)).layer(guard))
}

/// Returns the account of a login attempt. Counting by account also stops an attacker with many addresses.
/// Requests without credentials share one key.
fn account(request: &RequestView<'_>) -> Option<String> {
    Some(credentials(request.headers).map_or_else(String::new, |(user, _)| user))
}

async fn login(headers: HeaderMap) -> (StatusCode, &'static str) {
    match credentials(&headers) {
        Some((_, password)) if password == "secret" => (StatusCode::OK, "welcome\n"),
        _ => (StatusCode::UNAUTHORIZED, "wrong user or password\n"),
    }
}

/// Returns the user and the password of basic authentication.
fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    use base64::Engine as _;
    let encoded = headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    let decoded = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}
