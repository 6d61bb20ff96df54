//! Denials: in the body, by a status of the client's choice, and in headers.

use std::time::Duration;

use serde_json::json;

use super::{TWO_AN_HOUR, problem, user};
use crate::client::Reply;
use crate::in_process::InProcess;

const ONE_IN_TEN_SECONDS: &str = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 1, window: 10s}}}
";

/// Returns the response to a request beyond the limit.
fn beyond(service: &InProcess, query: &str) -> Reply {
    let mut client = service.client();
    client.send("POST", "/v1/check", &[], &user("ann").to_string());
    client.send("POST", &format!("/v1/check{query}"), &[], &user("ann").to_string())
}

#[test]
fn a_denial_has_the_status_that_was_chosen() {
    let service = InProcess::with_rules(ONE_IN_TEN_SECONDS);
    let reply = beyond(&service, "");
    assert_eq!((reply.status, reply.header("retry-after")), (200, None));
    assert_eq!(reply.json()["allowed"], json!(false));
    for status in [400, 401, 403, 404, 429, 499] {
        let reply = beyond(&service, &format!("?deny_status={status}"));
        problem(&reply, status);
        assert_eq!(reply.header("retry-after"), Some("10"));
        let body = reply.json();
        assert_eq!(body["violated-policies"], json!(["per-user"]));
        assert_eq!(body["retry_after"], json!(10));
        assert!(body["type"].as_str().unwrap().ends_with("#quota-exceeded"), "{body}");
    }
}

#[test]
fn what_is_allowed_is_200_whatever_is_chosen() {
    let service = InProcess::with_rules(ONE_IN_TEN_SECONDS);
    let reply = service.client().send("POST", "/v1/check?deny_status=429", &[], &user("ann").to_string());
    assert_eq!((reply.status, reply.json()["allowed"].clone()), (200, json!(true)));
}

#[test]
fn choices_that_are_none_are_refused_and_spend_nothing() {
    let service = InProcess::with_rules(ONE_IN_TEN_SECONDS);
    let refused = [
        ("deny_status=200", "deny_status"),
        ("deny_status=100", "deny_status"),
        ("deny_status=199", "deny_status"),
        ("deny_status=201", "deny_status"),
        ("deny_status=302", "deny_status"),
        ("deny_status=399", "deny_status"),
        ("deny_status=407", "deny_status"),
        ("deny_status=408", "deny_status"),
        ("deny_status=500", "deny_status"),
        ("deny_status=503", "deny_status"),
        ("deny_status=599", "deny_status"),
        ("deny_status=600", "deny_status"),
        ("deny_status=65965", "deny_status"),
        ("deny_status=-429", "deny_status"),
        ("deny_status=", "deny_status"),
        ("deny_status", "deny_status"),
        ("headers=all", "headers"),
        ("headers=Standard", "headers"),
        ("headers=", "headers"),
        ("colour=red", "colour"),
        ("cost=5", "cost"),
        ("headers=%zz", "percent-encoded"),
    ];
    let mut client = service.client();
    for (query, named) in refused {
        let reply = client.send("POST", &format!("/v1/check?{query}"), &[], &user("ann").to_string());
        let detail = problem(&reply, 400);
        assert!(detail.contains(named), "{query}: {detail}");
    }
    let reply = client.send("POST", "/v1/check", &[], &user("ann").to_string());
    assert_eq!(reply.json()["allowed"], json!(true), "nothing was spent");
}

/// A client that waits the whole seconds of `Retry-After` is admitted. Zero would mean an immediate retry.
#[test]
fn retry_after_is_rounded_up_and_at_least_a_second() {
    let told = [(0, "10"), (1, "10"), (8_900_000, "2"), (8_999_999, "2"), (9_000_000, "1"), (9_999_999, "1")];
    for (passed_us, seconds) in told {
        let service = InProcess::with_rules(ONE_IN_TEN_SECONDS);
        service.clock.advance(Duration::from_micros(passed_us));
        let reply = beyond(&service, "?deny_status=429");
        assert_eq!(reply.header("retry-after"), Some(seconds), "{passed_us} us into the window");
        assert_eq!(reply.json()["retry_after"].to_string(), seconds);
        let milliseconds = beyond(&service, "").json()["retry_after_ms"].as_u64().unwrap();
        assert_eq!(milliseconds, (10_000_000 - passed_us).div_ceil(1_000));
    }
}

#[test]
fn what_never_fits_has_no_time_to_come_back() {
    let service = InProcess::with_rules(ONE_IN_TEN_SECONDS);
    let body = json!({"attributes": {"user": "ann"}, "cost": 2}).to_string();
    let reply = service.client().send("POST", "/v1/check?deny_status=429", &[], &body);
    assert_eq!(problem(&reply, 429), "Retrying will not succeed.");
    assert_eq!(reply.header("retry-after"), None);
    assert_eq!(reply.json().get("retry_after"), None);
}

#[test]
fn headers_tell_what_is_left() {
    let service = InProcess::with_rules(TWO_AN_HOUR);
    let mut client = service.client();
    let mut ask =
        |query: &str| client.send("POST", &format!("/v1/check{query}"), &[], &user("ann").to_string());
    let told = |reply: &Reply, names: &[&str]| -> Vec<Option<String>> {
        names.iter().map(|name| reply.header(name).map(str::to_owned)).collect()
    };
    let standard = ["ratelimit-policy", "ratelimit"];
    let common = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    let some = |texts: &[&str]| -> Vec<Option<String>> {
        texts.iter().map(|text| Some((*text).to_owned())).collect()
    };

    let reply = ask("?headers=standard");
    assert_eq!(told(&reply, &standard), some(&[r#""per-user";q=2;w=3600"#, r#""per-user";r=1;t=2000"#]));
    assert_eq!(told(&reply, &common), [None, None, None]);
    let reply = ask("?headers=x-ratelimit");
    assert_eq!(told(&reply, &common), some(&["2", "0", "2000"]));
    assert_eq!(told(&reply, &standard), [None, None]);
    for query in ["", "?headers=none"] {
        let reply = ask(query);
        assert_eq!([told(&reply, &standard), told(&reply, &common)].concat(), [None, None, None, None, None]);
    }
    for (query, status) in [("?headers=standard", 200), ("?headers=standard&deny_status=429", 429)] {
        let reply = ask(query);
        assert_eq!(reply.status, status);
        assert_eq!(told(&reply, &standard), some(&[r#""per-user";q=2;w=3600"#, r#""per-user";r=0;t=2000"#]));
    }
}

/// The attempt that is made when the block ends would start the next one, so the wait is longer than the block.
#[test]
fn the_end_of_an_abuse_block_is_told() {
    let rules = "
rules:
  - id: logins
    scope: user
    strategy: {abuse: {temp: {window: 60s, threshold: 2, block: 10s}, long: {window: 1h, threshold: 9, block: 1d}}}
";
    let service = InProcess::with_rules(rules);
    let reply = beyond(&service, "");
    let rule = &reply.json()["rules"][0];
    assert_eq!((&rule["scope"], &rule["block_ends_after_ms"]), (&json!("temp"), &json!(10_000)), "{rule}");
    assert_eq!(rule["retry_after_ms"], json!(60_000), "{rule}");
    service.clock.advance(Duration::from_micros(3_500_001));
    let mut client = service.client();
    let reply = client.send("POST", "/v1/check?deny_status=429", &[], &user("ann").to_string());
    problem(&reply, 429);
    assert_eq!(reply.json()["block_ends_after"], json!(7), "{reply:?}");
    let key = client.send("GET", "/v1/keys/logins%7Cuser=ann", &[], "").json();
    assert_eq!((&key["scope"], &key["block_ends_after_ms"]), (&json!("temp"), &json!(6_500)), "{key}");
    service.clock.advance(Duration::from_micros(6_499_999));
    let key = client.send("GET", "/v1/keys/logins%7Cuser=ann", &[], "").json();
    assert_eq!((&key["blocked"], key.get("block_ends_after_ms")), (&json!(false), None), "{key}");
}
