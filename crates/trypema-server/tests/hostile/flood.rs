//! An unlimited number of keys, as clients can invent them.

use serde_json::json;

use crate::harness::Service;
use crate::process::{is_sound, memory};

const RULES: &str = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 1, window: 30d}}}
";
const MAX_KEYS: usize = 2_000;
const BATCH: usize = 1_000;
/// The number of batches that fill the table, and the number that follow.
const FILLING: usize = 5;
const FLOODING: usize = 60;
const MEMORY_SLACK: u64 = 8 * 1024 * 1024;

/// Once the table is full, new keys share the remaining counters. Limits become stricter, never looser, and
/// memory does not grow.
#[test]
fn names_without_end_take_no_memory_and_open_no_limit() {
    let service = Service::with_rules(RULES, &["--max-keys", &MAX_KEYS.to_string()]);
    let mut client = service.client();
    let mut name = 0;
    let mut batches = |count: usize| {
        for _ in 0..count {
            let questions: Vec<_> = (0..BATCH)
                .map(|_| {
                    name += 1;
                    json!({"attributes": {"user": format!("{name}-{}", "x".repeat(300))}})
                })
                .collect();
            let reply = client.send("POST", "/v1/check", &[], &json!(questions).to_string());
            assert_eq!((reply.status, reply.json().as_array().unwrap().len()), (200, BATCH));
        }
    };
    // The first user's only unit is spent and never becomes available again.
    let first = r#"{"attributes":{"user":"the first"}}"#;
    assert_eq!(service.post("/v1/check", first).json()["allowed"], true);
    batches(FILLING);
    let before = memory(&service);
    batches(FLOODING);
    let after = memory(&service);
    let live = service.metric("trypema_live_keys");
    println!("{live} keys of {name} names; memory {before} -> {after}");
    assert!(live <= MAX_KEYS as f64 * 1.1, "{live}");
    assert!(after <= before + MEMORY_SLACK, "{before} -> {after}");
    assert_eq!(service.post("/v1/check", first).json()["allowed"], false, "what was spent is forgotten");
    is_sound(&service);
}

#[test]
fn keys_do_not_forge_log_lines() {
    let mut service = Service::with_rules(RULES, &["--log-level", "debug"]);
    let forged = "x%0a2026-01-01T00:00:00Z%20ERROR%20forged%1b%5b31m";
    service.client().send("DELETE", &format!("/v1/keys/per-user%7Cuser={forged}"), &[], "");
    let user = "x\\n2026-01-01T00:00:00Z ERROR forged\\u001b[31m";
    for _ in 0..2 {
        service.post("/v1/check", &format!(r#"{{"attributes":{{"user":"{user}"}}}}"#));
    }
    service.post("/v1/check", &format!(r#"{{"attributes":{{"{user}":1}}}}"#));
    assert!(service.stop().success());
    let log = service.program.log();
    assert!(log.contains("forged"), "nothing was logged: {log}");
    assert!(!log.lines().any(|line| line.starts_with("2026-01-01T00:00:00Z ERROR")), "{log}");
    assert!(!log.contains('\u{1b}'), "{log}");
}
