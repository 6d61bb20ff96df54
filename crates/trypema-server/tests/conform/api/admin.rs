//! The admin API: on its own listener, always with a token, and with a limit on wrong tokens.

use std::time::Duration;

use super::{TWO_AN_HOUR, problem, user};
use crate::client::{Client, Reply};
use crate::in_process::{InProcess, TOKEN};

const ANN: &str = r#"{"attributes": {"user": "ann"}}"#;
/// Requests to the admin listener that need a token.
const ADMIN: [(&str, &str, &str); 9] = [
    ("POST", "/v1/explain", ANN),
    ("GET", "/v1/keys/per-user%7Cuser=ann", ""),
    ("DELETE", "/v1/keys/per-user%7Cuser=ann", ""),
    ("GET", "/v1/rules", ""),
    ("GET", "/v1/candidates", ""),
    ("PUT", "/v1/ruleset", r#"{"rules": []}"#),
    ("GET", "/v1/ruleset/history", ""),
    ("PUT", "/v1/overrides/per-user%7Cuser=ann", r#"{"verdict": "block"}"#),
    ("PUT", "/v1/lists/block/user/ann", ""),
];
const FORWARDED: [(&str, &str); 2] = [("x-forwarded-uri", "/"), ("x-forwarded-for", "203.0.113.1")];

fn each(client: &mut Client, headers: &[(&str, &str)]) -> Vec<Reply> {
    ADMIN.iter().map(|(method, path, body)| client.send(method, path, headers, body)).collect()
}

fn with_token(token: &str) -> [(&'static str, &str); 1] {
    [("authorization", token)]
}

#[test]
fn each_listener_serves_its_own_and_nothing_else() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let authorization = format!("Bearer {TOKEN}");
    let token = with_token(&authorization);
    let mut check = service.check_client();
    for (method, path, body) in ADMIN {
        let detail = problem(&check.send(method, path, &token, body), 404);
        assert!(detail.contains("admin_listen"), "{path}: {detail}");
    }
    for path in [
        "/",
        "/metrics",
        "/openapi.json",
        "/v1/rules/",
        "/v1/keys",
        "//v1/rules",
        "/v1/./rules",
        "/v1/%72ules",
    ] {
        problem(&check.send("GET", path, &token, ""), 404);
    }
    let absolute = format!("http://127.0.0.1:{}/v1/rules", service.admin_port());
    problem(&check.send("GET", &absolute, &token, ""), 400);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(check.send("GET", path, &[], "").status, 200, "{path}");
    }
    assert_eq!(check.send("POST", "/v1/check", &[], &user("ann").to_string()).status, 200);
    assert_eq!(check.send("GET", "/v1/forward-auth", &FORWARDED, "").status, 200);

    let mut admin = service.admin_client();
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/"] {
        assert_eq!(admin.send("GET", path, &[], "").status, 200, "{path} needs no token");
    }
    for (method, path) in
        [("POST", "/v1/check"), ("POST", "/v1/reserve"), ("POST", "/v1/settle"), ("GET", "/v1/forward-auth")]
    {
        problem(&admin.send(method, path, &token, ANN), 404);
    }
    let metrics = admin.send("GET", "/metrics", &[], "").body;
    assert!(
        metrics.contains("per-user") && !metrics.contains("ann"),
        "metrics name rules, never keys: {metrics}"
    );
}

#[test]
fn only_a_token_opens_administration() {
    let service = InProcess::start("admin_token: correct-horse-battery").ruled_by(TWO_AN_HOUR);
    let mut client = service.admin_client();
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let authorization = format!("{scheme} correct-horse-battery");
        for reply in each(&mut client, &with_token(&authorization)) {
            // The routes of stored rules answer 404: the rules of this server are in a file.
            assert!([200, 404, 428].contains(&reply.status), "{scheme}: {reply:?}");
        }
    }
    let no_tokens = ["Bearer ", "Bearer", "Basic correct-horse-battery", "correct-horse-battery", ""];
    for authorization in no_tokens {
        for reply in each(&mut client, &with_token(authorization)) {
            assert!(problem(&reply, 401).starts_with("this needs a token"), "{authorization}");
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        }
    }
    each(&mut client, &[]).iter().for_each(|reply| drop(problem(reply, 401)));
    let wrong = [
        "Bearer wrong",
        "Bearer correct-horse-batter",
        "Bearer correct-horse-batteryy",
        "Bearer Correct-horse-battery",
        "Bearer  correct-horse-battery",
        "Bearer correct-horse-battery,correct-horse-battery",
    ];
    for authorization in wrong {
        for reply in each(&mut client, &with_token(authorization)) {
            assert_eq!(problem(&reply, 401), "unknown token", "{authorization}");
            assert!(!reply.body.contains("horse"), "{reply:?}");
        }
        // After every limit on failed logins has expired.
        service.clock.advance(Duration::from_secs(2 * 3_600));
    }
}

#[test]
fn wrong_tokens_block_their_address_for_a_while() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let mut client = service.admin_client();
    let right = format!("Bearer {TOKEN}");
    let mut rules = |authorization: &str| client.send("GET", "/v1/rules", &with_token(authorization), "");
    for _ in 0..9 {
        problem(&rules("Bearer wrong"), 401);
    }
    assert_eq!(rules(&right).status, 200, "nine are forgiven");
    let blocked = rules("Bearer wrong");
    assert!(problem(&blocked, 429).contains("too many wrong tokens"));
    assert_eq!(blocked.header("retry-after"), Some("60"));
    assert_eq!(rules(&right).status, 200, "a valid token is never blocked: others may share its address");
    service.clock.advance(Duration::from_millis(30_500));
    let refused = rules("Bearer wrong");
    problem(&refused, 429);
    assert_eq!(refused.header("retry-after"), Some("30"), "rounded up");
    assert_eq!(rules(&right).status, 200);
    service.clock.advance(Duration::from_millis(29_500));
    problem(&rules("Bearer wrong"), 401);

    let mut others = service.admin_client();
    let metrics = others.send("GET", "/metrics", &[], "").body;
    for line in [
        "trypema_failed_logins_total{reason=\"wrong_token\"} 11\n",
        "trypema_failed_logins_total{reason=\"blocked\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}

/// Any client can guess tokens on a public check listener. Its failures count neither on the admin listener
/// nor against clients with a valid token.
#[test]
fn each_listener_counts_its_own_failures() {
    let settings = "admin_token: correct-horse-battery\ncaller_token: correct-horse-caller";
    let service = InProcess::start(settings).ruled_by(TWO_AN_HOUR);
    let mut check = service.check_client();
    for _ in 0..20 {
        check.send("POST", "/v1/reserve", &with_token("Bearer wrong"), ANN);
    }
    problem(&check.send("POST", "/v1/reserve", &with_token("Bearer wrong"), ANN), 429);
    assert_eq!(
        check.send("POST", "/v1/reserve", &with_token("Bearer correct-horse-caller"), ANN).status,
        200
    );
    let mut admin = service.admin_client();
    problem(&admin.send("GET", "/v1/rules", &with_token("Bearer wrong"), ""), 401);
    let right = with_token("Bearer correct-horse-battery");
    assert_eq!(admin.send("GET", "/v1/rules", &right, "").status, 200);
}

/// A probe is not a login, even with a token that is no longer valid.
#[test]
fn health_is_told_to_everybody() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let mut client = service.admin_client();
    for _ in 0..20 {
        assert_eq!(client.send("GET", "/readyz", &[], "").status, 200);
        assert_eq!(client.send("GET", "/readyz", &with_token("Bearer wrong"), "").status, 200);
    }
    problem(&client.send("GET", "/v1/rules", &with_token("Bearer wrong"), ""), 401);
    let metrics = client.send("GET", "/metrics", &[], "").body;
    assert!(metrics.contains("trypema_failed_logins_total{reason=\"wrong_token\"} 1\n"), "{metrics}");
}
