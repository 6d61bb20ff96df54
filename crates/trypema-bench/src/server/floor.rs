//! The floor: axum without a limiter. It parses the same request as our server and returns a constant
//! response of the same size.

use std::net::SocketAddr;
use std::process::ExitCode;

use axum::routing::post;
use axum::serve::ListenerExt as _;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::runtime::Builder;

/// Serves until the process is killed. The response reports `rules` rules.
pub fn serve(rules: &str, address: &str) -> ExitCode {
    let address: SocketAddr = address.parse().expect("an address to listen on");
    let rules: usize = rules.parse().expect("a number of rules");
    let runtime = Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let listener = listener.tap_io(|connection| {
            let _ = connection.set_nodelay(true);
        });
        let app = Router::new().route("/v1/check", post(move |body| check(body, rules)));
        axum::serve(listener, app).await.expect("a server that does not end");
    });
    ExitCode::SUCCESS
}

#[derive(Deserialize)]
struct Body {
    attributes: Attributes,
}

/// The request attributes, parsed into owned strings as our server does.
#[derive(Deserialize)]
#[expect(dead_code, reason = "there is nothing to decide")]
struct Attributes {
    user: String,
    endpoint: String,
    ip: String,
}

#[derive(Serialize)]
struct Answer {
    allowed: bool,
    outcome: &'static str,
    retry_after_ms: u64,
    decided_by: Option<&'static str>,
    rules: &'static [RuleAnswer],
}

#[derive(Serialize)]
struct RuleAnswer {
    rule: &'static str,
    key: &'static str,
    allowed: bool,
    action: &'static str,
    limit: u64,
    remaining: u64,
    retry_after_ms: u64,
    reset_after_ms: u64,
}

static RULES: [RuleAnswer; 3] = [
    rule("per-user", "per-user|user=user:00000000000007"),
    rule("per-address", "per-address|ip=203.0.113.9"),
    rule("per-endpoint", "per-endpoint|endpoint=/api/search"),
];

const fn rule(rule: &'static str, key: &'static str) -> RuleAnswer {
    RuleAnswer {
        rule,
        key,
        allowed: true,
        action: "reject",
        limit: 1_000_000_000,
        remaining: 999_123_456,
        retry_after_ms: 0,
        reset_after_ms: 75_733,
    }
}

async fn check(Json(body): Json<Body>, rules: usize) -> Json<Answer> {
    drop(body.attributes);
    Json(Answer {
        allowed: true,
        outcome: "allowed",
        retry_after_ms: 0,
        decided_by: None,
        rules: &RULES[..rules],
    })
}
