//! Every mode of a check, and every other operation, without Redis: each applies the rule's own policy.

use trypema_testkit::redis::Server;

use crate::client::Reply;
use crate::harness::Service;

const RULES: &str = "
rules:
  - id: logins
    scope: user
    key_pattern: '{login}'
    on_store_failure: deny
    strategy: {abuse: {temp: {window: 60s, threshold: 3, block: 10m}, long: {window: 1h, threshold: 9, block: 1d}}}
  - {id: error, scope: user, key_pattern: '{error}', on_store_failure: error, strategy: {fixed_window: {limit: 5, window: 30d}}}
  - {id: allow, scope: user, key_pattern: '{allow}', on_store_failure: allow, strategy: {fixed_window: {limit: 5, window: 30d}}}
  - {id: built, scope: user, key_pattern: '{built}', strategy: {fixed_window: {limit: 5, window: 30d}}}
  - {id: watched, scope: user, key_pattern: '{allow}', action: log_only, on_store_failure: error, strategy: {fixed_window: {limit: 1, window: 1h}}}
";

/// Sends a request in one mode, to which the rule of this attribute applies.
fn ask(service: &Service, mode: &str, attribute: &str) -> Reply {
    service.post("/v1/check", &format!(r#"{{"mode":"{mode}","attributes":{{"{attribute}":"ann"}}}}"#))
}

fn without_redis(provider: &str, policy: &str) -> Service {
    let redis = Server::start().unwrap();
    let flags = ["--provider", provider, "--redis-url", &redis.url(), "--on-store-failure", policy];
    let service = Service::with_rules(RULES, &flags);
    redis.kill_9().unwrap();
    service
}

#[test]
fn every_mode_follows_the_policy_of_its_rule() {
    for provider in ["redis", "hybrid"] {
        for policy in ["local", "error"] {
            let service = without_redis(provider, policy);
            for mode in ["check", "peek", "record"] {
                let told = |attribute: &str| {
                    let reply = ask(&service, mode, attribute);
                    assert!(matches!(reply.status, 200 | 503), "{provider} {policy} {mode}: {reply:?}");
                    reply
                };
                assert_eq!(told("login").status, 503, "{provider} {policy} {mode}: deny");
                assert_eq!(told("error").status, 503, "{provider} {policy} {mode}: error");
                let allowed = told("allow").json();
                assert_eq!(allowed["allowed"], true, "{provider} {policy} {mode}: {allowed}");
                let rules = allowed["rules"].as_array().unwrap();
                assert_eq!(rules.len(), 1, "a rule that only logs is left out: {allowed}");
                assert_eq!((&rules[0]["rule"], &rules[0]["substitute"]), (&"allow".into(), &true.into()));
                let counted = rules[0].get("counted").and_then(|counted| counted.as_bool());
                assert_eq!(counted, (mode == "record").then_some(false), "{allowed}");
                let built = told("built");
                match policy {
                    "error" => assert_eq!(built.status, 503, "{provider} {mode}"),
                    _ => {
                        let rule = &built.json()["rules"][0];
                        assert_eq!(rule["substitute"], true, "{provider} {mode}: {rule}");
                        let counted = rule.get("counted").and_then(|counted| counted.as_bool());
                        assert_eq!(counted, (mode == "record").then_some(true), "{rule}");
                    }
                }
            }
            // The failure policy decides a reservation, too. What it counts here cannot be settled.
            for (attribute, status) in [("login", 503), ("error", 503), ("allow", 200)] {
                let body = format!(r#"{{"attributes":{{"{attribute}":"ann"}}}}"#);
                let reserved = service.post("/v1/reserve", &body);
                assert_eq!(reserved.status, status, "{provider} {policy} {attribute}: {reserved:?}");
                if status == 200 {
                    let text = &reserved.json()["reservation"];
                    let body = format!(r#"{{"reservation":{text},"costs":{{}}}}"#);
                    let settled = service.post("/v1/settle", &body);
                    assert_eq!(
                        (settled.status, settled.json()["rules"].as_array().map(Vec::len)),
                        (200, Some(0))
                    );
                }
            }
        }
    }
}
