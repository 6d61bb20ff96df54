//! Operations on single counters: show, delete, explain.

use serde_json::{Value, json};

use super::{REST_OF_THE_HOUR_MS, TWO_AN_HOUR, check, problem, user};
use crate::client::Client;
use crate::in_process::InProcess;

/// Returns the path of a key that a response has named.
fn path_of(key: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    format!("/v1/keys/{}", key.bytes().map(encode).collect::<String>())
}

fn read(client: &mut Client, method: &str, path: &str) -> Value {
    let reply = client.send(method, path, &[], "");
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("application/json")),
        "{path}: {reply:?}"
    );
    reply.json()
}

#[test]
fn a_counter_is_looked_at_and_forgotten() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let mut client = service.client();
    let ann = path_of("per-user|user=ann");
    let holding = |remaining: u64, reset_after_ms: u64| {
        json!({
            "key": "per-user|user=ann", "rule": "per-user", "limit": 2, "remaining": remaining, "blocked": false,
            "retry_after_ms": reset_after_ms, "reset_after_ms": reset_after_ms,
        })
    };
    assert_eq!(read(&mut client, "DELETE", &ann), json!({"key": "per-user|user=ann", "existed": false}));
    check(&mut client, &user("ann"));
    check(&mut client, &user("ann"));
    assert_eq!(read(&mut client, "GET", &ann), holding(0, REST_OF_THE_HOUR_MS));
    assert_eq!(read(&mut client, "GET", &ann), holding(0, REST_OF_THE_HOUR_MS), "looking spends nothing");
    assert_eq!(read(&mut client, "DELETE", &ann), json!({"key": "per-user|user=ann", "existed": true}));
    assert_eq!(read(&mut client, "DELETE", &ann), json!({"key": "per-user|user=ann", "existed": false}));
    assert_eq!(check(&mut client, &user("ann"))["rules"][0]["remaining"], json!(1));
}

#[test]
fn keys_of_any_text_are_found_as_they_were_told() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let mut client = service.client();
    let long = "x".repeat(5_000);
    for name in ["a b", "a/b", "a|b", "a%b", "a+b", "a?b#c", "{a}", "~7c", "ä€😀", "\n\u{0}", "..", "", &long]
    {
        let key = check(&mut client, &user(name))["rules"][0]["key"].as_str().unwrap().to_owned();
        let body = read(&mut client, "GET", &path_of(&key));
        assert_eq!((&body["key"], &body["remaining"]), (&json!(key), &json!(1)), "{name:?}");
        assert_eq!(read(&mut client, "DELETE", &path_of(&key))["existed"], json!(true), "{name:?}");
        assert_eq!(read(&mut client, "GET", &path_of(&key))["remaining"], json!(2), "{name:?}");
    }
}

#[test]
fn keys_that_no_rule_has_are_404() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let mut client = service.client();
    for key in ["other|user=ann", "per-user2|user=ann", "|user=ann", "user=ann", ""] {
        for method in ["GET", "DELETE"] {
            let detail = problem(&client.send(method, &path_of(key), &[], ""), 404);
            assert!(detail.contains("unknown key"), "{key}: {detail}");
        }
    }
    for path in ["/v1/keys/%", "/v1/keys/%zz", "/v1/keys/per-user%7Cuser=%FF"] {
        assert!(problem(&client.send("GET", path, &[], ""), 400).contains("percent-encoded"), "{path}");
    }
}

const WITH_A_SHADOW: &str = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 5, window: 1h}}}
  - {id: shadow, scope: user, action: log_only, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: searches, scope: user, endpoints: [/search], strategy: {fixed_window: {limit: 5, window: 1h}}}
";

#[test]
fn an_explanation_is_about_every_rule_and_spends_nothing() {
    let service = InProcess::with_rules(WITH_A_SHADOW);
    let mut client = service.client();
    let question = json!({"attributes": {"user": "ann"}, "cost": 3});
    let mut explain = || {
        let reply = client.send("POST", "/v1/explain", &[], &question.to_string());
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    };
    let first = explain();
    assert_eq!(first["outcome"], json!("allowed"));
    let told = |rule: &Value| json!([rule["rule"], rule["allowed"], rule["left"], rule["remaining"]]);
    let told: Vec<Value> = first["rules"].as_array().unwrap().iter().map(told).collect();
    assert_eq!(told, [json!(["per-user", true, 5, 2]), json!(["shadow", false, 2, 2])]);
    assert_eq!(first["not_applying"][0]["rule"], json!("searches"));
    assert!(first["not_applying"][0]["reason"].as_str().unwrap().contains("endpoint"), "{first}");
    assert_eq!(explain(), first);
}

#[test]
fn the_rules_in_force_are_told() {
    let service = InProcess::with_rules(WITH_A_SHADOW);
    let body = read(&mut service.client(), "GET", "/v1/rules");
    let ids: Vec<&Value> = body["rules"].as_array().unwrap().iter().map(|rule| &rule["id"]).collect();
    assert_eq!(ids, [&json!("per-user"), &json!("searches"), &json!("shadow")]);
    assert_eq!(body["rules"][2]["action"], json!("log_only"));
    assert_eq!(body["rules"][0]["strategy"], json!({"fixed_window": {"limit": 5, "window": "1h"}}));
}
