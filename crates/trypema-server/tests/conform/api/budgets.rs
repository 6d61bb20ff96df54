//! Costs in other units, several attribute sets and conditions, over HTTP.

use serde_json::{Value, json};

use super::{check, problem};
use crate::client::Client;
use crate::in_process::InProcess;

const TOKENS: &str = "
units: [tokens]
rules:
  - {id: requests, scope: user, strategy: {fixed_window: {limit: 10, window: 1h}}}
  - {id: tokens, scope: user, unit: tokens, if_missing: deny, strategy: {fixed_window: {limit: 100, window: 1h}}}
  - {id: tenant, scope: tenant, unit: tokens, when: {region: {not: [eu]}}, strategy: {fixed_window: {limit: 50, window: 1h}}}
";

/// Returns the units that are left of each counter, by its name, without spending anything.
fn left(client: &mut Client) -> Value {
    let request = json!({
        "sets": [{"attributes": {"user": "ann"}, "costs": {"requests": 0, "tokens": 0}},
            {"attributes": {"tenant": "acme"}, "costs": {"requests": 0, "tokens": 0}}],
        "mode": "peek",
    });
    let response = check(client, &request);
    let rules = response["rules"].as_array().unwrap().iter();
    rules.map(|rule| (rule["key"].as_str().unwrap().to_owned(), rule["remaining"].clone())).collect()
}

#[test]
fn the_response_names_units_and_costs() {
    let service = InProcess::with_rules(TOKENS);
    let mut client = service.client();
    let response = check(&mut client, &json!({"attributes": {"user": "ann"}, "costs": {"tokens": 30}}));
    let told = |rule: &Value| json!([rule["rule"], rule["unit"], rule["cost"], rule["remaining"]]);
    let rules: Vec<Value> = response["rules"].as_array().unwrap().iter().map(told).collect();
    assert_eq!(rules, [json!(["requests", null, null, 9]), json!(["tokens", "tokens", 30, 70])]);

    let missing = check(&mut client, &json!({"attributes": {"user": "ann"}}));
    assert_eq!((&missing["allowed"], &missing["decided_by"]), (&json!(false), &json!("tokens")));
    let rule = &missing["rules"][0];
    let told = [&rule["missing_unit"], &rule["if_missing"], &rule["key"], &rule["missing_attribute"]];
    assert_eq!(told, [&json!("tokens"), &json!("deny"), &Value::Null, &Value::Null]);
    let shown = client.send("GET", "/v1/keys/tokens%7Cuser=ann", &[], "").json();
    assert_eq!((&shown["unit"], &shown["remaining"]), (&json!("tokens"), &json!(70)));
    let metric = r#"trypema_units_total{rule="tokens",unit="tokens"}"#;
    let metrics = client.send("GET", "/metrics", &[], "").body;
    assert!(metrics.contains(&format!("{metric} 30\n")), "{metrics}");
}

#[test]
fn three_sets_of_which_the_last_denies_spend_nothing() {
    let service = InProcess::with_rules(TOKENS);
    let mut client = service.client();
    let sets = |tokens: u64| {
        json!({"sets": [
            {"attributes": {"user": "ann"}, "costs": {"tokens": 10}},
            {"attributes": {"user": "ann"}, "costs": {"requests": 0, "tokens": 20}},
            {"attributes": {"tenant": "acme"}, "costs": {"tokens": tokens}},
        ]})
    };
    let before = json!({"requests|user=ann": 10, "tokens|user=ann": 100, "tenant|tenant=acme": 50});
    assert_eq!(left(&mut client), before);
    let denied = check(&mut client, &sets(51));
    assert_eq!((&denied["allowed"], &denied["decided_by"]), (&json!(false), &json!("tenant")));
    assert_eq!(left(&mut client), before);
    let allowed = check(&mut client, &sets(50));
    assert_eq!(allowed["allowed"], json!(true), "{allowed}");
    let tokens = allowed["rules"].as_array().unwrap().iter().find(|rule| rule["rule"] == "tokens");
    assert_eq!(tokens.unwrap()["cost"], json!(30), "the sum of both sets");
    let after = json!({"requests|user=ann": 9, "tokens|user=ann": 70, "tenant|tenant=acme": 0});
    assert_eq!(left(&mut client), after);
}

#[test]
fn explanations_name_conditions_and_missing_costs() {
    let service = InProcess::with_rules(TOKENS);
    let mut client = service.client();
    let mut reasons = |request: Value| {
        let response = client.send("POST", "/v1/explain", &[], &request.to_string()).json();
        let rules = response["not_applying"].as_array().unwrap().iter();
        rules.map(|rule| json!([rule["rule"], rule["reason"]])).collect::<Vec<_>>()
    };
    let in_europe =
        json!({"attributes": {"user": "ann", "tenant": "acme", "region": "eu"}, "costs": {"tokens": 1}});
    assert_eq!(reasons(in_europe), [json!(["tenant", "the rule is for other values of \"region\""])]);
    let without = json!({"attributes": {"user": "ann", "tenant": "acme"}});
    assert_eq!(reasons(without), [json!(["tenant", "the request has no cost in \"tokens\""])]);
}

/// Every mistake is a 400 that names it, on every route, alone and in a batch, and spends nothing.
#[test]
fn bad_costs_and_sets_are_refused() {
    let service = InProcess::with_rules(TOKENS);
    let mut client = service.client();
    let before = left(&mut client);
    let attributes = json!({"user": "ann", "tenant": "acme"});
    let set = json!({"attributes": attributes, "costs": {"tokens": 1}});
    let many_attributes: serde_json::Map<String, Value> =
        (0..17).map(|number| (format!("a{number}"), json!("x"))).collect();
    let cases = [
        (
            json!({"attributes": attributes, "costs": {"tokens": 1, "tokns": 1}}),
            "unit \"tokns\" is not declared",
        ),
        (json!({"attributes": attributes, "costs": {"tokens": -1}}), "expected a cost: a whole number"),
        (json!({"attributes": attributes, "costs": {"tokens": 1.5}}), "expected a cost: a whole number"),
        (json!({"attributes": attributes, "cost": 1, "costs": {"tokens": 1}}), "`cost` beside `costs`"),
        (json!({"attributes": attributes, "sets": [set]}), "`sets` excludes `attributes`"),
        (json!({"sets": []}), "at least one set"),
        (json!({"sets": [set, {"attributes": {"ip": "nobody"}}]}), "ip: need an address"),
        (json!({"sets": [set, {"attributes": {}, "costs": {"x": 0}}]}), "unit \"x\" is not declared"),
        (json!({"sets": vec![set.clone(); 33]}), "more than 32 attribute sets"),
        (
            json!({"sets": [{"attributes": many_attributes}, {"attributes": many_attributes}]}),
            "34 attributes: at most 32",
        ),
    ];
    for (body, expected) in &cases {
        for route in ["/v1/check", "/v1/explain", "/v1/reserve"] {
            let detail = problem(&client.send("POST", route, &[], &body.to_string()), 400);
            assert!(detail.contains(expected), "{route} {body}: {detail}");
        }
    }
    assert_eq!(left(&mut client), before);
}

/// Headers and problems name each rule once, with its tightest counter.
#[test]
fn headers_name_each_rule_once() {
    let service = InProcess::with_rules(TOKENS);
    let mut client = service.client();
    let two_users = |ann: u64, bob: u64| {
        let set =
            |user: &str, tokens: u64| json!({"attributes": {"user": user}, "costs": {"tokens": tokens}});
        json!({"sets": [set("ann", ann), set("bob", bob)]}).to_string()
    };
    let mut send = |body: &str| client.send("POST", "/v1/check?headers=standard&deny_status=429", &[], body);
    let allowed = send(&two_users(30, 60));
    assert_eq!(allowed.status, 200, "{allowed:?}");
    let left = allowed.header("ratelimit").unwrap();
    assert!(left.contains("\"requests\";r=9") && left.contains("\"tokens\";r=40"), "{left}");
    assert_eq!(left.matches("tokens").count(), 1, "{left}");
    let denied = send(&two_users(10, 41));
    assert_eq!((denied.status, &denied.json()["violated-policies"]), (429, &json!(["tokens"])), "{denied:?}");
}
