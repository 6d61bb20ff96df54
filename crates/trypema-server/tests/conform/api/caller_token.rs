//! Checks and reservations on a server with caller tokens.

use std::time::Duration;

use serde_json::json;

use super::{TWO_AN_HOUR, problem};
use crate::client::{Client, Reply};
use crate::folder::Folder;
use crate::in_process::InProcess;

const TOKENS: &str = "
admin_token: correct-horse-battery
reader_token: correct-horse-reader
caller_token: correct-horse-caller
";
const ADMIN: [(&str, &str); 1] = [("authorization", "Bearer correct-horse-battery")];
const READER: [(&str, &str); 1] = [("authorization", "Bearer correct-horse-reader")];
const CALLER: [(&str, &str); 1] = [("authorization", "Bearer correct-horse-caller")];
const WRONG: [(&str, &str); 1] = [("authorization", "Bearer correct-horse-nobody")];

const ANN: &str = r#"{"attributes": {"user": "ann"}}"#;
/// Requests that need a caller token: single checks of every mode, a batch, and the verbs of
/// reservations.
const CALLS: [(&str, &str); 9] = [
    ("/v1/check", ANN),
    ("/v1/check?deny_status=429&headers=standard", ANN),
    ("/v1/check", r#"{"attributes": {"user": "ann"}, "mode": "peek"}"#),
    ("/v1/check", r#"{"attributes": {"user": "ann"}, "mode": "record"}"#),
    ("/v1/check", r#"[{"attributes": {"user": "ann"}}, {"attributes": {"user": "ann"}}]"#),
    ("/v1/reserve?deny_status=429", ANN),
    ("/v1/settle", r#"{"reservation": "r1.bo9omtz0YlZo9Vb1D0EJqg", "costs": {}}"#),
    ("/v1/release", r#"{"reservation": "r1.bo9omtz0YlZo9Vb1D0EJqg"}"#),
    ("/v1/renew", r#"{"reservation": "r1.bo9omtz0YlZo9Vb1D0EJqg"}"#),
];

fn each(client: &mut Client, headers: &[(&str, &str)]) -> Vec<Reply> {
    CALLS.iter().map(|(path, body)| client.send("POST", path, headers, body)).collect()
}

/// Returns the units that ann has left.
fn remaining(service: &InProcess) -> u64 {
    let shown = service.admin_client().send("GET", "/v1/keys/per-user%7Cuser=ann", &READER, "");
    shown.json()["remaining"].as_u64().unwrap()
}

#[test]
fn only_a_caller_token_opens_checks_and_reservations() {
    let service = InProcess::start(TOKENS).ruled_by(TWO_AN_HOUR);
    let mut client = service.check_client();
    let spent = client.send("POST", "/v1/check", &CALLER, ANN).json();
    assert_eq!((&spent["allowed"], remaining(&service)), (&json!(true), 1));

    let no_tokens = ["Bearer ", "Bearer", "Basic correct-horse-caller", "correct-horse-caller", ""];
    let no_tokens = no_tokens.map(|authorization| vec![("authorization", authorization)]);
    for headers in no_tokens.iter().chain([&Vec::new()]) {
        for reply in each(&mut client, headers) {
            assert!(problem(&reply, 401).starts_with("this needs a caller token"), "{headers:?}");
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        }
    }
    for wrong in ["correct-horse-calle", "correct-horse-callerr", " correct-horse-caller", "caller"] {
        let authorization = format!("Bearer {wrong}");
        for reply in each(&mut client, &[("authorization", &authorization)]) {
            assert_eq!(problem(&reply, 401), "unknown token", "{wrong}");
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
            assert!(!reply.body.contains("horse"), "{reply:?}");
        }
        // Nine failures do not block the address; the next nine do not add to them.
        service.clock.advance(Duration::from_secs(61));
    }
    for headers in [ADMIN, READER] {
        for reply in each(&mut client, &headers) {
            assert!(problem(&reply, 403).starts_with("this needs a caller token"), "{headers:?}");
        }
    }
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        for path in ["/v1/check", "/v1/reserve", "/v1/settle", "/v1/release", "/v1/renew"] {
            problem(&client.send(method, path, &[], ""), 401);
            problem(&client.send(method, path, &CALLER, ""), 405);
        }
    }
    assert_eq!(remaining(&service), 1, "a refused request spends nothing");

    for scheme in ["Bearer", "bearer", "BEARER"] {
        let authorization = format!("{scheme} correct-horse-caller");
        let statuses: Vec<u16> = each(&mut client, &[("authorization", &authorization)])
            .iter()
            .map(|reply| reply.status)
            .collect();
        // One unit is left for the first of two checks.
        assert_eq!(statuses, [200, 429, 200, 200, 200, 429, 200, 200, 200], "{scheme}");
    }
}

#[test]
fn forward_auth_health_and_metrics_need_no_caller_token() {
    let service = InProcess::start(TOKENS).ruled_by(TWO_AN_HOUR);
    let mut client = service.check_client();
    // The token in a forward-auth request belongs to the proxied request.
    for authorization in ["", "Bearer token-of-a-users-session", "Bearer correct-horse-battery"] {
        let headers =
            [("x-forwarded-uri", "/"), ("x-forwarded-for", "203.0.113.1"), ("authorization", authorization)];
        for path in ["/v1/forward-auth", "/v1/forward-auth/nginx"] {
            assert_eq!(client.send("GET", path, &headers, "").status, 200, "{path} with {authorization}");
        }
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(client.send("GET", path, &[], "").status, 200, "{path}");
    }
    let mut admin = service.admin_client();
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/"] {
        assert_eq!(admin.send("GET", path, &[], "").status, 200, "{path}");
    }
}

/// `database/access.rs` tests the other routes of administration.
#[test]
fn an_explanation_needs_a_reader_token() {
    for settings in [TOKENS, &TOKENS.replace("caller_token", "# caller_token")] {
        let service = InProcess::start(settings).ruled_by(TWO_AN_HOUR);
        let mut client = service.admin_client();
        let mut explain = |headers: &[(&str, &str)]| client.send("POST", "/v1/explain", headers, ANN);
        problem(&explain(&[]), 401);
        problem(&explain(&WRONG), 401);
        let has_caller = settings == TOKENS;
        let with_caller_token = problem(&explain(&CALLER), if has_caller { 403 } else { 401 });
        assert_eq!(with_caller_token.contains("use a reader token"), has_caller, "{with_caller_token}");
        assert_eq!((explain(&READER).status, explain(&ADMIN).status), (200, 200));
    }
}

/// Wrong caller tokens count with the wrong tokens of reservations, and not on the admin listener.
#[test]
fn wrong_caller_tokens_block_their_address_for_a_while() {
    let service = InProcess::start(TOKENS).ruled_by(TWO_AN_HOUR);
    let mut client = service.check_client();
    let mut call = |path: &str, headers: &[(&str, &str)]| client.send("POST", path, headers, ANN);
    // Neither the token of another role nor a missing one is a guess.
    for _ in 0..20 {
        problem(&call("/v1/check", &[]), 401);
        problem(&call("/v1/check", &ADMIN), 403);
    }
    for _ in 0..3 {
        for path in ["/v1/check", "/v1/reserve", "/v1/check"] {
            problem(&call(path, &WRONG), 401);
        }
    }
    let blocked = call("/v1/check", &WRONG);
    assert!(problem(&blocked, 429).contains("too many wrong tokens"));
    assert_eq!(blocked.header("retry-after"), Some("60"));
    assert_eq!(call("/v1/check", &CALLER).status, 200, "a valid token is never blocked");
    service.clock.advance(Duration::from_secs(60));
    problem(&call("/v1/check", &WRONG), 401);
    let mut admin = service.admin_client();
    problem(&admin.send("GET", "/v1/rules", &WRONG, ""), 401);
    let metrics = admin.send("GET", "/metrics", &[], "").body;
    let failed = "trypema_failed_logins_total{reason=\"wrong_token\"} 12\n";
    assert!(metrics.contains(failed), "{metrics}");
}

/// A new token is added beside the old one, and the old one is removed once no caller uses it.
#[test]
fn a_file_can_hold_several_caller_tokens() {
    let folder = Folder::new();
    let file = folder.file(
        "callers",
        "shop correct-horse-one\n\n  gateway@eu \t correct-horse-two \ncorrect-horse-three\n",
    );
    let settings = format!("admin_token: correct-horse-battery\ncaller_token_file: {}", file.display());
    let statuses = |service: &InProcess| {
        ["one", "two", "three", "four"].map(|number| {
            let authorization = format!("Bearer correct-horse-{number}");
            service.check_client().send("POST", "/v1/check", &[("authorization", &authorization)], ANN).status
        })
    };
    let service = InProcess::start(&settings).ruled_by(TWO_AN_HOUR);
    assert_eq!(statuses(&service), [200, 200, 200, 401]);
    folder.file("callers", "shop correct-horse-four\n");
    assert_eq!(statuses(&service), [200, 200, 200, 401], "tokens are read at the start");
    let restarted = InProcess::start(&settings).ruled_by(TWO_AN_HOUR);
    assert_eq!(statuses(&restarted), [401, 401, 401, 200]);
}

/// A page of an allowed origin can read why it is refused, and sends a preflight without a token.
#[test]
fn a_page_needs_a_caller_token_too() {
    let settings = format!("{TOKENS}allowed_origins: [https://app.example]");
    let service = InProcess::start(&settings).ruled_by(TWO_AN_HOUR);
    let mut client = service.check_client();
    let origin = ("origin", "https://app.example");
    let preflight = [
        origin,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization"),
    ];
    assert_eq!(client.send("OPTIONS", "/v1/check", &preflight, "").status, 204);
    let refused = client.send("POST", "/v1/check", &[origin], ANN);
    problem(&refused, 401);
    assert_eq!(refused.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(client.send("POST", "/v1/check", &[origin, CALLER[0]], ANN).status, 200);
}
