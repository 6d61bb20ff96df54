//! Outcomes besides allowed and denied.

use serde_json::{Value, json};

use super::{check, problem, user};
use crate::client::Client;
use crate::in_process::InProcess;

fn attributes(pairs: &[(&str, &str)]) -> Value {
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
    json!({"attributes": Value::Object(pairs.collect())})
}

fn outcome(client: &mut Client, question: &Value) -> (Value, Value) {
    let answer = check(client, question);
    (answer["outcome"].clone(), answer["retry_after_ms"].clone())
}

/// One unit per second: a cost of 1 has to wait a second, which `max_delay` allows. The wait for a cost of 2
/// is too long.
#[test]
fn a_throttled_caller_is_asked_to_wait_if_that_is_not_too_long() {
    let rules = "
rules:
  - {id: paced, scope: user, action: throttle, max_delay: 1500ms, strategy: {token_bucket: {limit: 2, window: 2s}}}
";
    let service = InProcess::with_rules(rules);
    let mut client = service.client();
    let costing = |cost: u64| json!({"attributes": {"user": "ann"}, "cost": cost});
    assert_eq!(outcome(&mut client, &costing(2)), (json!("allowed"), json!(0)));
    let throttled = check(&mut client, &costing(1));
    assert_eq!((&throttled["outcome"], &throttled["allowed"]), (&json!("throttled"), &json!(false)));
    assert_eq!((&throttled["retry_after_ms"], &throttled["decided_by"]), (&json!(1_000), &json!("paced")));
    assert_eq!(throttled["rules"][0]["action"], json!("throttle"));
    assert_eq!(outcome(&mut client, &costing(2)), (json!("denied"), json!(2_000)));
    let reply = client.send("POST", "/v1/check?deny_status=429", &[], &costing(1).to_string());
    problem(&reply, 429);
    assert_eq!(reply.header("retry-after"), Some("1"));
    service.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(
        outcome(&mut client, &costing(1)),
        (json!("allowed"), json!(0)),
        "after the wait it is let in"
    );
}

#[test]
fn a_rule_that_only_logs_never_denies_and_is_in_no_header() {
    let rules = "
rules:
  - {id: shadow, scope: user, action: log_only, strategy: {fixed_window: {limit: 1, window: 1h}}}
";
    let service = InProcess::with_rules(rules);
    let mut client = service.client();
    for round in 0..5 {
        let reply =
            client.send("POST", "/v1/check?headers=standard&deny_status=429", &[], &user("ann").to_string());
        assert_eq!((reply.status, reply.header("ratelimit")), (200, None));
        let answer = reply.json();
        assert_eq!(answer["outcome"], json!("allowed"));
        assert_eq!(answer["rules"][0]["action"], json!("log_only"));
        assert_eq!(answer["rules"][0]["allowed"], json!(round == 0), "what it says by itself is told");
    }
}

#[test]
fn lists_decide_by_themselves() {
    let rules = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 1, window: 1h}}}
allow:
  user: [root]
  ip: [10.0.0.0/8]
block:
  user: [mallory]
";
    let service = InProcess::with_rules(rules);
    let mut client = service.client();
    for _ in 0..3 {
        for (name, value, entry) in [("user", "root", "root"), ("ip", "10.1.2.3", "10.0.0.0/8")] {
            let answer = check(&mut client, &attributes(&[(name, value)]));
            let expected = json!({
                "allowed": true, "outcome": "allowed", "retry_after_ms": 0, "decided_by": null, "listed_by": name,
                "listed_entry": entry, "rules": [],
            });
            assert_eq!(answer, expected);
        }
    }
    for question in
        [attributes(&[("user", "mallory")]), attributes(&[("user", "mallory"), ("ip", "10.1.2.3")])]
    {
        let answer = check(&mut client, &question);
        let expected = json!({
            "allowed": false, "outcome": "blocked", "retry_after_ms": null, "decided_by": null, "listed_by": "user",
            "listed_entry": "mallory", "rules": [],
        });
        assert_eq!(answer, expected, "being blocked goes before being allowed");
        for (given, status) in [(429, 403), (401, 401)] {
            let path = format!("/v1/check?deny_status={given}");
            let reply = client.send("POST", &path, &[], &question.to_string());
            assert!(problem(&reply, status).contains("An operator blocked this client."));
            assert_eq!(reply.header("retry-after"), None);
        }
    }
}

#[test]
fn single_keys_may_have_limits_and_verdicts_of_their_own() {
    let rules = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 1, window: 1h}}}
overrides:
  - {rule: per-user, key: {user: big}, strategy: {fixed_window: {limit: 3, window: 1h}}}
  - {rule: per-user, key: {user: friend}, verdict: allow}
  - {rule: per-user, key: {user: foe}, verdict: block}
";
    let service = InProcess::with_rules(rules);
    let mut client = service.client();
    let mut allowed = |name: &str| {
        let batch = json!([user(name), user(name), user(name), user(name)]);
        let answers = check(&mut client, &batch);
        answers.as_array().unwrap().iter().filter(|answer| answer["allowed"] == json!(true)).count()
    };
    assert_eq!((allowed("ann"), allowed("big"), allowed("friend"), allowed("foe")), (1, 3, 4, 0));
    let foe = check(&mut client, &user("foe"));
    assert_eq!((&foe["retry_after_ms"], &foe["decided_by"]), (&Value::Null, &json!("per-user")));
    assert_eq!((&foe["outcome"], &foe["rules"][0]["blocked"]), (&json!("blocked"), &json!(true)));
    let body = client.send("GET", "/v1/keys/per-user%7Cuser=foe", &[], "").json();
    assert_eq!((&body["blocked"], &body["retry_after_ms"]), (&json!(true), &Value::Null));
    let body = client.send("GET", "/v1/keys/per-user%7Cuser=big", &[], "").json();
    assert_eq!((&body["limit"], &body["remaining"], &body["blocked"]), (&json!(3), &json!(0), &json!(false)));
    assert!(body["retry_after_ms"].as_u64().unwrap() > 0, "an exhausted key has to wait: {body}");
    let unused = client.send("GET", "/v1/keys/per-user%7Cuser=new", &[], "").json();
    assert_eq!((&unused["remaining"], &unused["retry_after_ms"]), (&json!(1), &json!(0)));
}
