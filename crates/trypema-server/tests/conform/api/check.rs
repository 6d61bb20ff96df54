//! `POST /v1/check` with a single request and with a batch.

use serde_json::{Value, json};

use super::{REST_OF_THE_HOUR_MS, TWO_AN_HOUR, check, problem, user};
use crate::in_process::InProcess;

#[test]
fn a_limit_is_reached_and_told() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let mut client = service.client();
    let rule = |is_allowed: bool, remaining: u64, retry_after_ms: u64| {
        json!({
            "rule": "per-user", "key": "per-user|user=ann", "allowed": is_allowed, "action": "reject", "limit": 2,
            "remaining": remaining, "retry_after_ms": retry_after_ms, "reset_after_ms": REST_OF_THE_HOUR_MS,
        })
    };
    let allowed = |remaining| {
        let rules = [rule(true, remaining, 0)];
        json!({"allowed": true, "outcome": "allowed", "retry_after_ms": 0, "decided_by": null, "rules": rules})
    };
    assert_eq!(check(&mut client, &user("ann")), allowed(1));
    assert_eq!(check(&mut client, &user("ann")), allowed(0));
    let denied = json!({
        "allowed": false, "outcome": "denied", "retry_after_ms": REST_OF_THE_HOUR_MS, "decided_by": "per-user",
        "rules": [rule(false, 0, REST_OF_THE_HOUR_MS)],
    });
    assert_eq!(check(&mut client, &user("ann")), denied);
    assert_eq!(check(&mut client, &user("bob"))["allowed"], json!(true));
}

#[test]
fn what_no_rule_is_about_is_allowed() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let answer = check(&mut service.client(), &json!({"attributes": {}}));
    let nothing =
        json!({"allowed": true, "outcome": "allowed", "retry_after_ms": 0, "decided_by": null, "rules": []});
    assert_eq!(answer, nothing);
}

#[test]
fn a_batch_is_answered_in_its_order() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let batch = json!([user("ann"), user("bob"), user("ann"), user("ann"), {"attributes": {}}]);
    let answers = check(&mut service.client(), &batch);
    let told = |answer: &Value| (answer["allowed"].clone(), answer["rules"][0]["key"].clone());
    let told: Vec<(Value, Value)> = answers.as_array().unwrap().iter().map(told).collect();
    let (ann, bob) = (json!("per-user|user=ann"), json!("per-user|user=bob"));
    let expected = [
        (json!(true), ann.clone()),
        (json!(true), bob),
        (json!(true), ann.clone()),
        (json!(false), ann),
        (json!(true), Value::Null),
    ];
    assert_eq!(told, expected);
}

/// More rules apply to `/wide` than one check may have. Only that request of the batch fails.
#[test]
fn what_fails_in_a_batch_fails_alone() {
    let wide = |number: usize| {
        format!(
            "  - {{id: r{number}, scope: global, endpoints: [/wide], strategy: {{fixed_window: {{limit: 9, window: 1h}}}}}}\n"
        )
    };
    let rules = format!("{TWO_AN_HOUR}{}", (0..65).map(wide).collect::<String>());
    let service = InProcess::with_rules(&rules);
    let mut client = service.client();
    let wide = json!({"attributes": {"endpoint": "/wide", "user": "ann"}});
    let answers = check(&mut client, &json!([user("ann"), wide, user("ann"), user("ann")]));
    assert_eq!(answers[1]["error"]["status"], json!(400), "{answers}");
    assert!(answers[1]["error"]["detail"].as_str().unwrap().contains("more than 64 rules"), "{answers}");
    let allowed: Vec<&Value> = [0, 2, 3].iter().map(|index| &answers[index]["allowed"]).collect();
    assert_eq!(allowed, [&json!(true), &json!(true), &json!(false)]);
    let alone = client.send("POST", "/v1/check", &[], &wide.to_string());
    assert!(problem(&alone, 400).contains("more than 64 rules"));
}

#[test]
fn a_batch_has_a_bound() {
    let service = InProcess::start("max_batch: 3").ruled_by(TWO_AN_HOUR);
    let mut client = service.client();
    assert_eq!(check(&mut client, &json!([])), json!([]));
    assert_eq!(check(&mut client, &json!([user("a"), user("b"), user("c")])).as_array().unwrap().len(), 3);
    let batch = json!([user("a"), user("b"), user("c"), user("d")]).to_string();
    let detail = problem(&client.send("POST", "/v1/check", &[], &batch), 400);
    assert!(detail.contains("4 requests in one batch; the maximum is 3 (max_batch)"), "{detail}");
    assert_eq!(
        check(&mut client, &user("a"))["rules"][0]["remaining"],
        json!(0),
        "a refused batch spends nothing"
    );
}

/// A batch has one status, so `deny_status` does not apply to it.
#[test]
fn a_batch_is_200_whatever_is_chosen() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let batch = json!([user("ann"), user("ann"), user("ann")]).to_string();
    let reply = service.client().send("POST", "/v1/check?deny_status=429&headers=standard", &[], &batch);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()[2]["allowed"], json!(false));
    assert_eq!(reply.header("retry-after"), None);
}

const LOGINS: &str = "
rules:
  - id: logins
    scope: user
    strategy: {abuse: {temp: {window: 60s, threshold: 3, block: 10m}, long: {window: 24h, threshold: 20, block: 24h}}}
";

/// The application looks before a login attempt and records the attempt if it fails. Successes do not count,
/// and the third failure blocks.
#[test]
fn a_login_guard_counts_failures_only() {
    let service = InProcess::with_rules(LOGINS);
    let mut client = service.client();
    let mut ask = |mode: &str| check(&mut client, &json!({"attributes": {"user": "ann"}, "mode": mode}));
    for _ in 0..10 {
        assert_eq!(ask("peek")["allowed"], json!(true));
    }
    assert_eq!(ask("record")["allowed"], json!(true));
    assert_eq!(ask("record")["allowed"], json!(true));
    assert_eq!(ask("peek")["allowed"], json!(true));
    assert_eq!(ask("record")["allowed"], json!(false), "the third failure is the one that blocks");
    let blocked = ask("peek");
    assert_eq!((&blocked["allowed"], &blocked["retry_after_ms"]), (&json!(false), &json!(600_000)));
    assert_eq!(ask("check")["allowed"], json!(false));
}

#[test]
fn looking_spends_nothing_and_recording_counts_whatever_is_denied() {
    let both = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 1, window: 1h}}}
  - {id: total, scope: global, strategy: {fixed_window: {limit: 9, window: 1h}}}
";
    let service = InProcess::with_rules(both);
    let mut client = service.client();
    let mut ask = |mode: &str| {
        let answer = check(&mut client, &json!({"attributes": {"user": "ann"}, "mode": mode}));
        let left = |index: usize| answer["rules"][index]["remaining"].as_u64().unwrap();
        (answer["allowed"].as_bool().unwrap(), left(0), left(1))
    };
    assert_eq!(ask("peek"), (true, 0, 8));
    assert_eq!(ask("peek"), (true, 0, 8));
    assert_eq!(ask("check"), (true, 0, 8));
    assert_eq!(ask("check"), (false, 0, 8), "denied: nothing is spent on either");
    assert_eq!(ask("record"), (false, 0, 7), "denied by one, and still counted by the other");
    assert_eq!(ask("record"), (false, 0, 6));
}

#[test]
fn costs_from_nothing_to_too_much() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let mut client = service.client();
    let mut ask = |cost: u64| {
        let answer = check(&mut client, &json!({"attributes": {"user": "ann"}, "cost": cost}));
        (
            answer["allowed"].as_bool().unwrap(),
            answer["retry_after_ms"].as_u64(),
            answer["rules"][0]["remaining"].clone(),
        )
    };
    assert_eq!(ask(0), (true, Some(0), json!(2)));
    assert_eq!(ask(3), (false, None, json!(2)), "never fits");
    assert_eq!(ask(u64::MAX), (false, None, json!(2)));
    assert_eq!(ask(2), (true, Some(0), json!(0)));
    assert_eq!(ask(0), (true, Some(0), json!(0)), "asking for nothing is always allowed");
    assert_eq!(ask(1), (false, Some(REST_OF_THE_HOUR_MS), json!(0)));
    for cost in ["18446744073709551616", "-1", "1.5", "\"1\"", "null"] {
        let body = format!(r#"{{"attributes": {{"user": "ann"}}, "cost": {cost}}}"#);
        assert!(
            problem(&client.send("POST", "/v1/check", &[], &body), 400).contains("line 1 column"),
            "{cost}"
        );
    }
}

/// Pipelined requests are answered in order.
#[test]
fn requests_may_follow_each_other_at_once() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let mut client = service.client();
    let body = user("ann").to_string();
    let request =
        format!("POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    client.write(request.repeat(3).as_bytes()).unwrap();
    let allowed: Vec<Value> = (0..3).map(|_| client.read().unwrap().json()["allowed"].clone()).collect();
    assert_eq!(allowed, [json!(true), json!(true), json!(false)]);
}
