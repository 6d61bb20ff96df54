//! The HTTP API: every route, method and status.

#[path = "api/admin.rs"]
mod admin;
#[path = "api/budgets.rs"]
mod budgets;
#[path = "api/caller_token.rs"]
mod caller_token;
#[path = "api/check.rs"]
mod check;
#[path = "api/counters.rs"]
mod counters;
#[path = "api/denials.rs"]
mod denials;
#[path = "api/errors.rs"]
mod errors;
#[path = "api/forward_auth.rs"]
mod forward_auth;
#[path = "api/hashed.rs"]
mod hashed;
#[path = "api/long_work.rs"]
mod long_work;
#[path = "api/missing.rs"]
mod missing;
#[path = "api/origins.rs"]
mod origins;
#[path = "api/outcomes.rs"]
mod outcomes;
#[path = "api/reservations.rs"]
mod reservations;
#[path = "api/store.rs"]
mod store;
#[path = "api/takeover.rs"]
mod takeover;

use serde_json::{Value, json};

use crate::client::{Client, Reply};

/// Two requests per hour for each user.
const TWO_AN_HOUR: &str = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 2, window: 1h}}}
";

/// Milliseconds from the start of a test to the end of the hour.
const REST_OF_THE_HOUR_MS: u64 = 2_000_000;

/// Sends a check and returns the body, which must be a decision.
fn check(client: &mut Client, question: &Value) -> Value {
    let reply = client.send("POST", "/v1/check", &[], &question.to_string());
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")), "{reply:?}");
    reply.json()
}

/// Returns the body of a check for a user.
fn user(name: &str) -> Value {
    json!({"attributes": {"user": name}})
}

/// Asserts that a reply is a problem (RFC 9457) with this status, and returns its detail.
fn problem(reply: &Reply, status: u16) -> String {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{reply:?}");
    let problem = reply.json();
    assert_eq!(problem["status"], json!(status), "{problem}");
    assert!(problem["type"].is_string() && problem["title"].is_string(), "{problem}");
    problem["detail"].as_str().unwrap_or_default().to_owned()
}
