//! Changing rules, overrides and lists through the API, alone and with other editors.

#[path = "editing/bodies.rs"]
mod bodies;
#[path = "editing/editors.rs"]
mod editors;
#[path = "editing/endpoints.rs"]
mod endpoints;

use serde_json::{Value, json};

use crate::client::Reply;
use crate::harness::Service;
use crate::scene::{Scene, done, is_allowed, per_user, send};

/// Sends a request with `If-Match` for this revision.
fn at(service: &Service, revision: &str, (method, path): (&str, &str), body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    service.client().send(method, path, &[("if-match", revision)], &body)
}

/// Sends a request without `If-Match`.
fn without(service: &Service, method: &str, path: &str, body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    service.client().send(method, path, &[], &body)
}

fn detail(reply: &Reply) -> String {
    reply.json()["detail"].as_str().unwrap_or_default().to_owned()
}

fn exported(service: &Service) -> Value {
    done(service, "GET", "/v1/ruleset", &Value::Null)
}

fn candidate(limit: u64) -> Value {
    let mut rule = per_user("candidate", limit);
    let more = json!({"candidate_for": "per-user", "share": 0.5, "name": "new", "priority": 7});
    rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    rule
}

#[test]
fn a_rule_lives_from_creation_to_deletion() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let created = without(&service, "POST", "/v1/rules", &per_user("per-user", 2));
    assert_eq!((created.status, &created.json()["revision"]), (201, &json!(1)), "{created:?}");
    assert_eq!(created.json()["changes"][0]["before"], Value::Null);
    let again = without(&service, "POST", "/v1/rules", &per_user("per-user", 3));
    assert_eq!(again.status, 409, "{again:?}");
    let shown = service.get("/v1/rules/per-user");
    assert_eq!((shown.status, shown.header("etag")), (200, Some("\"1\"")));
    assert_eq!(shown.json()["strategy"]["fixed_window"]["limit"], json!(2));

    // A live key obeys the new limit at once, and its spent units stay spent.
    assert_eq!([(); 3].map(|()| is_allowed(&service, "ann")), [true, true, false]);
    let changed = at(&service, "\"1\"", ("PUT", "/v1/rules/per-user"), &per_user("per-user", 3));
    assert_eq!((changed.status, &changed.json()["revision"]), (200, &json!(2)), "{changed:?}");
    assert_eq!([(); 2].map(|()| is_allowed(&service, "ann")), [true, false]);

    let off = at(&service, "\"2\"", ("PATCH", "/v1/rules/per-user"), &json!({"enabled": false}));
    assert_eq!((off.status, is_allowed(&service, "ann")), (200, true), "{off:?}");
    let on = at(&service, "\"3\"", ("PATCH", "/v1/rules/per-user"), &json!({"enabled": true}));
    assert_eq!((on.status, is_allowed(&service, "ann")), (200, false), "{on:?}");

    // A request that changes nothing creates no revision.
    for reply in [
        at(&service, "\"4\"", ("PATCH", "/v1/rules/per-user"), &json!({"enabled": true})),
        at(&service, "\"4\"", ("PUT", "/v1/rules/per-user"), &per_user("per-user", 3)),
    ] {
        assert_eq!((reply.status, reply.json()), (200, json!({"revision": 4, "changes": []})));
    }
    let deleted = at(&service, "\"4\"", ("DELETE", "/v1/rules/per-user"), &Value::Null);
    assert_eq!((deleted.status, is_allowed(&service, "ann")), (200, true), "{deleted:?}");
    assert_eq!(service.get("/v1/rules/per-user").status, 404);
    assert_eq!(exported(&service), json!({"rules": [], "overrides": [], "allow": {}, "block": {}}));
}

#[test]
fn changes_name_the_revision_that_they_are_for() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    done(&service, "POST", "/v1/rules", &per_user("per-user", 2));
    done(&service, "POST", "/v1/rules", &candidate(9));
    done(&service, "PUT", "/v1/overrides/per-user%7Cuser=ann", &json!({"verdict": "block"}));
    let before = exported(&service);
    let changes = [
        ("PUT", "/v1/rules/per-user", per_user("per-user", 3)),
        ("PATCH", "/v1/rules/per-user", json!({"enabled": false})),
        ("DELETE", "/v1/rules/candidate", Value::Null),
        ("POST", "/v1/rules/candidate/promote", Value::Null),
        ("PUT", "/v1/ruleset", json!({"rules": []})),
        ("POST", "/v1/ruleset/revert", json!({"to": 1})),
    ];
    for (method, path, body) in &changes {
        let missing = without(&service, method, path, body);
        assert_eq!(missing.status, 428, "{method} {path}: {missing:?}");
        assert!(detail(&missing).contains("If-Match"), "{missing:?}");
        for (stale, status) in
            [("\"0\"", 409), ("99", 409), ("W/\"1\"", 400), ("soon", 400), ("", 400), ("-1", 400)]
        {
            let refused = at(&service, stale, (method, path), body);
            assert_eq!(refused.status, status, "{method} {path} {stale}: {refused:?}");
        }
    }
    let special = "/v1/overrides/per-user%7Cuser=ann";
    for (method, body) in [("PUT", json!({"verdict": "allow"})), ("DELETE", Value::Null)] {
        let refused = at(&service, "\"2\"", (method, special), &body);
        assert_eq!(refused.status, 409, "{refused:?}");
    }
    assert_eq!(exported(&service), before);
    // The revision of the rule, which differs from that of the rule set.
    let shown = service.get("/v1/rules/per-user");
    assert_eq!(shown.header("etag"), Some("\"1\""));
    assert_eq!(at(&service, "\"1\"", ("PUT", "/v1/rules/per-user"), &per_user("per-user", 3)).status, 200);
    assert_eq!(service.get("/v1/ruleset").header("etag"), Some("\"4\""));
    assert_eq!(at(&service, "4", ("PUT", "/v1/ruleset"), &json!({"rules": []})).status, 200);
}

#[test]
fn a_candidate_takes_the_place_of_its_live_rule() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let mut live = per_user("per-user", 5);
    live["name"] = json!("old");
    done(&service, "POST", "/v1/rules", &live);
    done(&service, "POST", "/v1/rules", &candidate(1));
    done(&service, "PUT", "/v1/overrides/per-user%7Cuser=bob", &json!({"verdict": "block"}));
    done(&service, "PUT", "/v1/overrides/candidate%7Cuser=eve", &json!({"verdict": "allow"}));
    assert!(is_allowed(&service, "ann"));

    let refused = send(&service, "DELETE", "/v1/rules/per-user", &Value::Null);
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(detail(&refused).contains("candidate"), "{refused:?}");
    let none = send(&service, "POST", "/v1/rules/per-user/promote", &Value::Null);
    assert_eq!((none.status, detail(&none)), (409, "rule \"per-user\" is not a candidate".to_owned()));

    let promoted = send(&service, "POST", "/v1/rules/candidate/promote", &Value::Null);
    assert_eq!(promoted.status, 200, "{promoted:?}");
    // The live rule keeps its name, and takes every other field from the candidate.
    let mut live = per_user("per-user", 1);
    let more = json!({"name": "old", "action": "reject", "priority": 7, "enabled": true});
    live.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let bob = json!({"rule": "per-user", "key": {"user": "bob"}, "verdict": "block"});
    assert_eq!(exported(&service), json!({"rules": [live], "overrides": [bob], "allow": {}, "block": {}}));
    // The key has already spent one unit under the live rule.
    assert_eq!(["ann", "bob", "joe"].map(|user| is_allowed(&service, user)), [false, false, true]);
}

/// The unit and the conditions say which requests the rule is about, so they come from the candidate, too.
#[test]
fn a_promoted_candidate_keeps_its_unit_and_conditions() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let mut next = candidate(1);
    for (field, value) in
        [("unit", json!("tokens")), ("postpaid", json!(true)), ("when", json!({"model": ["gpt-*"]}))]
    {
        next[field] = value;
    }
    done(
        &service,
        "PUT",
        "/v1/ruleset",
        &json!({"units": ["tokens"], "rules": [per_user("per-user", 5), next]}),
    );
    done(&service, "POST", "/v1/rules/candidate/promote", &Value::Null);
    let promoted = done(&service, "GET", "/v1/rules/per-user", &Value::Null);
    for field in ["unit", "postpaid", "when", "strategy"] {
        assert_eq!(promoted[field], next[field], "{field}");
    }
}

/// `requests` is the default, and is stored as such.
#[test]
fn a_rule_that_names_the_default_unit_equals_one_without_a_unit() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let mut rule = per_user("per-user", 5);
    rule["unit"] = json!("requests");
    done(&service, "POST", "/v1/rules", &rule);
    assert_eq!(done(&service, "GET", "/v1/rules/per-user", &Value::Null)["unit"], Value::Null);
    let again = done(&service, "PUT", "/v1/ruleset", &json!({"rules": [rule]}));
    assert_eq!(again, json!({"revision": 1, "changes": []}));
    rule["unit"] = json!("token");
    let refused = send(&service, "PUT", "/v1/rules/per-user", &rule);
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(detail(&refused).contains("unit \"token\" is not declared"), "{refused:?}");
}

/// An override is resolved by its rule, in whichever unit that counts and whatever else it says.
#[test]
fn keys_of_every_kind_of_rule_are_overridden() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let window = |limit: u64| json!({"fixed_window": {"limit": limit, "window": "300d"}});
    let monthly =
        |limit: u64| json!({"fixed_window": {"limit": limit, "per": "month", "zone": "Europe/Berlin"}});
    let in_flight = |limit: u64| json!({"concurrency": {"limit": limit, "hold": "1m"}});
    let rules = json!([
        {"id": "budget", "scope": "user", "unit": "usd_micros", "strategy": monthly(5)},
        {"id": "tokens", "scope": "user", "unit": "tokens", "postpaid": true, "strategy": window(5)},
        {"id": "next", "scope": "user", "unit": "tokens", "candidate_for": "tokens", "strategy": window(5)},
        {"id": "in-flight", "scope": "user", "unit": "tokens", "strategy": in_flight(5)},
        {"id": "model", "scope": "user", "when": {"model": ["gpt-*"]}, "strategy": window(5)},
    ]);
    done(&service, "PUT", "/v1/ruleset", &json!({"units": ["tokens", "usd_micros"], "rules": rules}));
    for (rule, strategy) in [
        ("budget", monthly(9)),
        ("tokens", window(9)),
        ("next", window(9)),
        ("in-flight", in_flight(9)),
        ("model", window(9)),
    ] {
        let path = format!("/v1/overrides/{rule}%7Cuser=ann");
        done(&service, "PUT", &path, &json!({"strategy": strategy}));
        let shown = done(&service, "GET", &path, &Value::Null);
        assert_eq!((&shown["rule"], &shown["strategy"]), (&json!(rule), &strategy), "{shown}");
        assert_eq!(service.get(&format!("/v1/keys/{rule}%7Cuser=ann")).json()["limit"], json!(9), "{rule}");
        done(&service, "PUT", &path, &json!({"verdict": "block"}));
        done(&service, "DELETE", &path, &Value::Null);
        assert_eq!(service.get(&path).status, 404, "{rule}");
    }
    // The new budget is in force: 9 units instead of 5.
    done(&service, "PUT", "/v1/overrides/budget%7Cuser=ann", &json!({"strategy": monthly(9)}));
    let question = json!({"attributes": {"user": "ann"}, "costs": {"usd_micros": 9, "tokens": 1}});
    assert_eq!(service.post("/v1/check", &question.to_string()).json()["allowed"], json!(true));
    assert_eq!(service.post("/v1/check", &question.to_string()).json()["decided_by"], json!("budget"));
}

#[test]
fn single_keys_and_lists_are_changed() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    done(&service, "POST", "/v1/rules", &per_user("per-user", 1));
    let ann = "/v1/overrides/per-user%7Cuser=ann";
    assert_eq!(service.get(ann).status, 404);
    assert_eq!(send(&service, "DELETE", ann, &Value::Null).status, 404);
    done(&service, "PUT", ann, &json!({"strategy": {"fixed_window": {"limit": 2, "window": "300d"}}}));
    assert_eq!([(); 3].map(|()| is_allowed(&service, "ann")), [true, true, false]);
    done(&service, "PUT", ann, &json!({"verdict": "allow"}));
    assert!(is_allowed(&service, "ann"));
    let shown = service.get(ann);
    assert_eq!(shown.header("etag"), Some("\"3\""));
    assert_eq!(
        shown.json(),
        json!({"revision": 3, "rule": "per-user", "key": {"user": "ann"}, "verdict": "allow"})
    );
    let again = done(&service, "PUT", ann, &json!({"verdict": "allow"}));
    assert_eq!(again, json!({"revision": 3, "changes": []}));
    assert_eq!(service.get("/v1/overrides?rule=per-user").json()["overrides"].as_array().unwrap().len(), 1);
    assert_eq!(service.get("/v1/overrides?rule=other").json(), json!({"overrides": []}));
    done(&service, "DELETE", ann, &Value::Null);
    assert!(!is_allowed(&service, "ann"), "what it spent stays spent");

    done(&service, "PUT", "/v1/lists/allow/user/ann", &Value::Null);
    assert!(is_allowed(&service, "ann"));
    done(&service, "PUT", "/v1/lists/block/user/ann", &Value::Null);
    assert!(!is_allowed(&service, "ann"));
    let again = done(&service, "PUT", "/v1/lists/block/user/ann", &Value::Null);
    assert_eq!(again, json!({"revision": 6, "changes": []}));
    done(&service, "PUT", "/v1/lists/allow/ip/10.0.0.0%2F8", &Value::Null);
    let lists = json!({"allow": {"ip": ["10.0.0.0/8"], "user": ["ann"]}, "block": {"user": ["ann"]}});
    assert_eq!(service.get("/v1/lists").json(), lists);
    for path in ["/v1/lists/allow/user/ann", "/v1/lists/block/user/ann", "/v1/lists/allow/ip/10.0.0.0/8"] {
        done(&service, "DELETE", path, &Value::Null);
        assert_eq!(send(&service, "DELETE", path, &Value::Null).status, 404, "{path}");
    }

    // Deleting a rule also deletes its overrides.
    done(&service, "PUT", ann, &json!({"verdict": "block"}));
    let deleted = done(&service, "DELETE", "/v1/rules/per-user", &Value::Null);
    let kinds: Vec<&Value> =
        deleted["changes"].as_array().unwrap().iter().map(|change| &change["kind"]).collect();
    assert_eq!(kinds, ["rule", "override"]);
    assert_eq!(exported(&service), json!({"rules": [], "overrides": [], "allow": {}, "block": {}}));
}
