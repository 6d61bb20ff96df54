//! Requests that lack an attribute, rule names, and the counts of abuse rules: in responses, metrics and the
//! log.

use serde_json::json;

use super::{check, problem, user};
use crate::harness::Service;
use crate::in_process::InProcess;

const RULES: &str = "
rules:
  - {id: all, scope: global, strategy: {fixed_window: {limit: 100, window: 1h}}}
  - {id: per-user, name: Each user, scope: user, strategy: {fixed_window: {limit: 5, window: 1h}}}
  - {id: strict, scope: user, endpoints: [/strict], if_missing: deny, strategy: {fixed_window: {limit: 5, window: 1h}}}
  - {id: loud, scope: user, endpoints: [/loud], if_missing: error, strategy: {fixed_window: {limit: 5, window: 1h}}}
  - id: logins
    name: Logins
    scope: user
    key_pattern: '{login}'
    strategy: {abuse: {temp: {window: 60s, threshold: 2, block: 10m}, long: {window: 1h, threshold: 9, block: 1d}}}
";

#[test]
fn a_missing_attribute_denies_or_fails_as_the_rule_says() {
    let service = InProcess::with_rules(RULES);
    let mut client = service.client();
    let at = |path: &str| json!({"attributes": {"endpoint": path}});

    let denied = check(&mut client, &at("/strict"));
    assert_eq!((&denied["outcome"], &denied["retry_after_ms"]), (&json!("denied"), &json!(null)));
    assert_eq!(denied["decided_by"], json!("strict"));
    let rule = &denied["rules"].as_array().unwrap().iter().find(|rule| rule["rule"] == "strict").unwrap();
    assert_eq!((&rule["missing_attribute"], &rule["if_missing"]), (&json!("user"), &json!("deny")));
    assert_eq!(rule["key"], json!(null));
    let reply = client.send("POST", "/v1/check?deny_status=403", &[], &at("/strict").to_string());
    assert_eq!(problem(&reply, 403), "The request has no \"user\", which rule \"strict\" needs.");
    assert_eq!(reply.header("retry-after"), None);

    let needed = "the request has no \"user\", which rule \"loud\" needs";
    let reply = client.send("POST", "/v1/check", &[], &at("/loud").to_string());
    assert_eq!(problem(&reply, 400), needed);
    let batch = json!([at("/loud"), at("/strict"), user("ann")]).to_string();
    let answers = client.send("POST", "/v1/check", &[], &batch).json();
    assert_eq!(
        (&answers[0]["error"]["status"], &answers[0]["error"]["detail"]),
        (&json!(400), &json!(needed))
    );
    assert_eq!((&answers[1]["allowed"], &answers[2]["allowed"]), (&json!(false), &json!(true)));

    let explained = client.send("POST", "/v1/explain", &[], &at("/loud").to_string()).json();
    let loud = explained["rules"].as_array().unwrap().iter().find(|rule| rule["rule"] == "loud").unwrap();
    assert_eq!((&loud["missing_attribute"], &loud["if_missing"]), (&json!("user"), &json!("error")));
    let left = check(&mut client, &user("ann"))["rules"][0]["remaining"].clone();
    assert_eq!(left, json!(98), "nothing was spent on others");
}

#[test]
fn answers_name_rules_and_what_they_counted() {
    let service = InProcess::with_rules(RULES);
    let mut client = service.client();
    let answer = check(&mut client, &user("ann"));
    let names: Vec<_> = answer["rules"].as_array().unwrap().iter().map(|rule| rule.get("name")).collect();
    assert_eq!(names, [None, Some(&json!("Each user"))]);
    let login = json!({"attributes": {"login": "ann"}});
    let counted = |rule: &serde_json::Value| {
        ["name", "short_count", "long_count", "scope"].map(|field| rule.get(field).cloned())
    };
    let some = |text| Some(json!(text));
    let first = check(&mut client, &login)["rules"][1].clone();
    assert_eq!(counted(&first), [some("Logins"), Some(json!(1)), Some(json!(1)), None]);
    let blocked = check(&mut client, &login)["rules"][1].clone();
    assert_eq!(counted(&blocked), [some("Logins"), Some(json!(2)), Some(json!(2)), some("temp")]);
    let key = client.send("GET", "/v1/keys/logins%7Clogin=ann", &[], "").json();
    assert_eq!(counted(&key)[0], some("Logins"));
    assert_eq!(counted(&key)[3], some("temp"));
    let explained = client.send("POST", "/v1/explain", &[], &user("ann").to_string()).json();
    let others = explained["not_applying"].as_array().unwrap();
    assert!(others.iter().any(|rule| rule["rule"] == "logins" && rule["name"] == "Logins"), "{explained}");
    let reserved = client.send("POST", "/v1/reserve", &[], &user("ann").to_string()).json();
    let settlement = json!({"reservation": reserved["reservation"], "costs": {}}).to_string();
    let settled = client.send("POST", "/v1/settle", &[], &settlement).json();
    let names = settled["rules"].as_array().unwrap().iter().map(|rule| &rule["name"]);
    assert!(names.into_iter().any(|name| name == "Each user"), "{settled}");
}

#[test]
fn rules_that_skip_requests_are_counted() {
    let service = InProcess::with_rules(RULES);
    let mut client = service.client();
    for _ in 0..50 {
        check(&mut client, &json!({"attributes": {"endpoint": "/pay", "method": "POST"}}));
    }
    check(&mut client, &user("ann"));
    check(&mut client, &json!({"attributes": {}, "mode": "peek"}));
    let metrics = client.send("GET", "/metrics", &[], "").body;
    for (rule, skipped) in [("per-user", 50), ("logins", 51), ("all", 0), ("strict", 0)] {
        let sample = format!("trypema_rules_skipped_total{{rule=\"{rule}\",reason=\"missing\"}} {skipped}\n");
        assert!(metrics.contains(&sample), "{sample} in\n{metrics}");
    }
}

#[test]
fn the_log_tells_what_rules_that_only_log_would_have_denied() {
    let rules = "
rules:
  - {id: shadow, name: Tighter, scope: user, action: log_only, strategy: {fixed_window: {limit: 1, window: 365d}}}
";
    let mut service = Service::with_rules(rules, &[]);
    let mut client = service.client();
    for _ in 0..3 {
        assert_eq!(check(&mut client, &user("ann"))["allowed"], json!(true));
    }
    let line = service.program.line("would have denied").unwrap();
    for part in ["INFO", "shadow", "Tighter", "shadow|user=ann"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn the_log_warns_of_more_rules_than_can_be_asked() {
    let rule = |number: usize| {
        format!(
            "  - {{id: r{number}, scope: global, strategy: {{fixed_window: {{limit: 1, window: 1h}}}}}}\n"
        )
    };
    let rules = format!("rules:\n{}", (0..65).map(rule).collect::<String>());
    let mut service = Service::with_rules(&rules, &[]);
    let line = service.program.line("rules can apply to one attribute set").unwrap();
    assert!(line.contains("WARN") && line.contains("65") && line.contains("64"), "{line}");
    let reply = service.client().send("POST", "/v1/check", &[], &user("ann").to_string());
    assert_eq!(problem(&reply, 400), "more than 64 rules apply to this request");
}
