//! Responses while Redis is unreachable: each rule applies its `on_store_failure`, and the status is never
//! 429.

use serde_json::{Value, json};
use trypema_testkit::program::FreePort;

use super::{check, problem};
use crate::client::Client;
use crate::in_process::InProcess;

const RULES: &str = "
rules:
  - {id: strict, scope: user, key_pattern: '{strict}', on_store_failure: error, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: open, scope: user, key_pattern: '{open}', on_store_failure: allow, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: closed, scope: user, key_pattern: '{closed}', on_store_failure: deny, strategy: {fixed_window: {limit: 2, window: 1h}}}
  - {id: unsaid, scope: user, strategy: {fixed_window: {limit: 2, window: 1h}}}
";

/// A server whose Redis is unreachable.
struct Lonely {
    service: InProcess,
    _nobody: FreePort,
}

fn lonely(settings: &str) -> Lonely {
    let nobody = FreePort::any().unwrap();
    let settings = format!("redis_url: redis://127.0.0.1:{}\n{settings}\n{PROFILES}", nobody.number());
    Lonely { service: InProcess::start(&settings).ruled_by(RULES), _nobody: nobody }
}

fn about(name: &str) -> Value {
    json!({"attributes": {name: "ann"}})
}

/// A profile for each rule. Denials have the status 403.
const PROFILES: &str = "
forward_auth:
  profiles:
    strict: {attributes: {strict: {value: ann}}, deny_status: 403}
    open: {attributes: {open: {value: ann}}, deny_status: 403}
    closed: {attributes: {closed: {value: ann}}, deny_status: 403}
    user: {attributes: {user: {value: ann}}, deny_status: 403}
";

fn forward_auth(client: &mut Client, profile: &str) -> crate::client::Reply {
    let headers = [("x-forwarded-uri", "/"), ("x-forwarded-for", "203.0.113.1")];
    client.send("GET", &format!("/v1/forward-auth/{profile}"), &headers, "")
}

#[test]
fn an_error_is_503_and_names_nobody() {
    let lonely = lonely("");
    let mut client = lonely.service.client();
    for name in ["strict", "user"] {
        for path in [
            "/v1/check",
            "/v1/check?deny_status=429",
            "/v1/explain",
            "/v1/reserve",
            "/v1/reserve?deny_status=429",
        ] {
            let reply = client.send("POST", path, &[], &about(name).to_string());
            problem(&reply, 503);
            assert_eq!(reply.header("retry-after"), Some("1"), "{path}: {reply:?}");
            assert!(!reply.body.contains("127.0.0.1"), "{reply:?}");
        }
        problem(&forward_auth(&mut client, name), 503);
    }
    let both = check(&mut client, &json!([about("strict"), {"attributes": {}}]));
    assert_eq!((&both[0]["error"]["status"], &both[1]["allowed"]), (&json!(503), &json!(true)), "{both}");
    for method in ["GET", "DELETE"] {
        problem(&client.send(method, "/v1/keys/strict%7Cstrict=ann", &[], ""), 503);
    }
}

#[test]
fn a_rule_may_let_pass_or_deny_instead_and_says_so() {
    let lonely = lonely("");
    let mut client = lonely.service.client();
    for _ in 0..5 {
        let open = check(&mut client, &about("open"));
        assert_eq!(
            (&open["allowed"], &open["rules"][0]["substitute"]),
            (&json!(true), &json!(true)),
            "{open}"
        );
        assert_eq!(forward_auth(&mut client, "open").status, 200);
        problem(&client.send("POST", "/v1/check", &[], &about("closed").to_string()), 503);
        let batch = client.send("POST", "/v1/check", &[], &json!([about("closed")]).to_string()).json();
        let closed = &batch[0];
        assert_eq!(
            (&closed["outcome"], &closed["rules"][0]["substitute"]),
            (&json!("unavailable"), &json!(true)),
            "{closed}"
        );
        let reply = client.send(
            "POST",
            "/v1/check?deny_status=429&headers=standard",
            &[],
            &about("closed").to_string(),
        );
        problem(&reply, 503);
        assert_eq!((reply.header("retry-after"), reply.header("ratelimit")), (Some("1"), None));
        problem(&forward_auth(&mut client, "closed"), 503);
    }
}

#[test]
fn what_rules_do_not_say_is_a_setting() {
    let outcome = |settings: &str| {
        let lonely = lonely(settings);
        let mut client = lonely.service.client();
        let ask = || json!([about("user")]).to_string();
        let answers: Vec<Value> = (0..3)
            .map(|_| client.send("POST", "/v1/check", &[], &ask()).json()[0]["outcome"].clone())
            .collect();
        let last = client.send("POST", "/v1/check?deny_status=429", &[], &about("user").to_string()).status;
        (answers, last)
    };
    let (allowed, unavailable) = (json!("allowed"), json!("unavailable"));
    assert_eq!(outcome("on_store_failure: allow"), (vec![allowed.clone(); 3], 200));
    assert_eq!(outcome("on_store_failure: deny"), (vec![unavailable.clone(); 3], 503));
    let two = vec![allowed.clone(), allowed.clone(), unavailable.clone()];
    assert_eq!(outcome("on_store_failure: local"), (two, 503), "counted here, at the whole limit");
    let one = vec![allowed, unavailable.clone(), unavailable];
    assert_eq!(outcome("on_store_failure: local\ninstances: 2"), (one, 503), "counted here, at half of it");
}

#[test]
fn the_service_is_alive_and_ready_without_its_store() {
    let lonely = lonely("");
    let mut client = lonely.service.client();
    for _ in 0..20 {
        client.send("POST", "/v1/check", &[], &about("strict").to_string());
    }
    assert_eq!(client.send("GET", "/healthz", &[], "").status, 200);
    let ready = client.send("GET", "/readyz", &[], "");
    let expected = json!({"ready": true, "provider": "redis", "rules": 4, "rules_from": "file", "store": "unavailable", "rules_refused": false});
    assert_eq!((ready.status, ready.json()), (200, expected));
}
