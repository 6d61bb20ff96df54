//! Request bodies: wrong bodies, paths and methods are refused with a reason, and unusual texts are stored
//! unchanged.

use serde_json::{Value, json};

use super::{detail, exported, without};
use crate::scene::{Scene, done, per_user, send};

#[test]
fn wrong_bodies_are_refused_with_a_reason() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    done(&service, "POST", "/v1/rules", &per_user("per-user", 1));
    let before = exported(&service);
    let raw = |method: &str, path: &str, body: &str| {
        service.client().send(method, path, &[("if-match", "*")], body)
    };
    let bodies = [
        ("POST", "/v1/rules"),
        ("PUT", "/v1/rules/per-user"),
        ("PATCH", "/v1/rules/per-user"),
        ("PUT", "/v1/ruleset"),
        ("POST", "/v1/ruleset/revert"),
        ("PUT", "/v1/overrides/per-user%7Cuser=ann"),
    ];
    for (method, path) in bodies {
        for body in
            ["{", "[", "nothing", "[]", "7", "\"text\"", "{\"unknown\": 1}", "{\"enabled\": 1, \"rules\": 1}"]
        {
            let refused = raw(method, path, body);
            assert_eq!(refused.status, 400, "{method} {path} {body}: {refused:?}");
            assert!(!detail(&refused).is_empty(), "{refused:?}");
        }
        let large = format!("{{\"id\": \"{}\"}}", "x".repeat(10 * 1024 * 1024));
        if path != "/v1/ruleset" {
            let mut client = service.admin_client();
            // The server may refuse the body without reading all of it.
            let token = service.admin.as_ref().unwrap().token.as_ref().unwrap();
            let headers =
                format!("if-match: *\r\nauthorization: Bearer {token}\r\ncontent-length: {}", large.len());
            let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n\r\n");
            client.write(head.as_bytes()).unwrap();
            let refused = client.read().unwrap();
            assert_eq!(refused.status, 413, "{method} {path}: {refused:?}");
        }
    }
    assert_eq!(exported(&service), before);
}

/// Wrong types, unknown and missing fields, and wrong numbers: one request tells them all, also a dry run.
#[test]
fn sixteen_mistakes_are_told_at_once() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    let before = exported(&service);
    let body = json!({
        "rules": [
            {"id": "search", "scope": "everybody", "endpoints": ["search"],
                "strategy": {"fixed_window": {"limit": 0, "window": 60}}},
            {"id": "login attempts", "scope": "ip", "strategy": {"abuse": {
                "temp": {"window": "1m", "threshold": "many", "block": "0s"}, "long": {"window": "1d", "block": "1d"}}}},
            {"id": "upload", "scope": "tenant", "key_pattern": "tenant:{api_key", "priorty": 5, "action": "slow_down",
                "enabled": "yes", "strategy": {"token_bucket": {"limit": 10, "burst": 5}}},
            {"scope": "user", "strategy": "leaky_bucket"},
        ],
        "block": {"ip": ["10.0.0.0/33"]},
    });
    let fields = [
        "rules[0].scope",
        "rules[0].endpoints[0]",
        "rules[0].strategy.fixed_window.limit",
        "rules[0].strategy.fixed_window.window",
        "rules[1].id",
        "rules[1].strategy.abuse.temp.threshold",
        "rules[1].strategy.abuse.temp.block",
        "rules[1].strategy.abuse.long.threshold",
        "rules[2].key_pattern",
        "rules[2].priorty",
        "rules[2].action",
        "rules[2].enabled",
        "rules[2].strategy.token_bucket.window",
        "rules[3].id",
        "rules[3].strategy",
        "block.ip[0]",
    ];
    for path in ["/v1/ruleset", "/v1/ruleset?dry_run=true"] {
        let refused = service.client().send("PUT", path, &[("if-match", "*")], &body.to_string());
        assert_eq!(refused.status, 400, "{path}: {refused:?}");
        let detail = detail(&refused);
        let missing: Vec<_> = fields.iter().filter(|field| !detail.contains(**field)).collect();
        assert!(missing.is_empty(), "{missing:?} are not in\n{detail}");
        assert_eq!(detail.lines().count(), 1 + fields.len(), "{detail}");
    }
    let rule =
        json!({"id": 5, "scope": "everybody", "strategy": {"fixed_window": {"limit": 1, "window": 60}}});
    let refused = service.client().send("POST", "/v1/rules", &[], &rule.to_string());
    for reason in [
        "id: need text, not 5",
        "scope: need one of global, tenant, user, ip, endpoint, not \"everybody\"",
        "strategy.fixed_window.window: `60` needs a unit, for example `60s`",
    ] {
        assert!(detail(&refused).contains(reason), "{refused:?}");
    }
    assert_eq!(exported(&service), before);
}

#[test]
fn invalid_rules_are_refused_by_name_and_reason() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    done(&service, "POST", "/v1/rules", &per_user("per-user", 1));
    let before = exported(&service);
    let mut closed = per_user("other", 1);
    closed["key_pattern"] = json!("{user");
    let huge = json!({"id": "huge", "scope": "user", "strategy": {"token_bucket": {"limit": u64::MAX, "window": "1s", "burst": 1}}});
    for (method, path, body, reasons) in [
        ("POST", "/v1/rules", per_user("other", 0), &["other", "limit"][..]),
        ("POST", "/v1/rules", closed, &["other", "does not close a brace"]),
        ("POST", "/v1/rules", per_user("a/b", 1), &["invalid id"]),
        ("POST", "/v1/rules", huge, &[]),
        ("PUT", "/v1/rules/per-user", per_user("per-user", 0), &["per-user", "limit"]),
        (
            "PUT",
            "/v1/ruleset",
            json!({"rules": [per_user("a", 1), per_user("a", 2)]}),
            &["\"a\"", "duplicate id"],
        ),
        ("PUT", "/v1/ruleset?dry_run=true", json!({"rules": [per_user("a", 0)]}), &["\"a\"", "limit"]),
        (
            "PUT",
            "/v1/ruleset",
            json!({"overrides": [{"rule": "gone", "verdict": "block"}]}),
            &["there is no rule \"gone\""],
        ),
        ("PUT", "/v1/overrides/per-user%7Cuser=ann", json!({}), &["per-user", "needs a `strategy`"]),
        (
            "PUT",
            "/v1/overrides/per-user%7Cuser=ann",
            json!({"strategy": {"sliding_window": {"limit": 1, "window": "1s"}}}),
            &["per-user", "the rule's strategy is fixed_window"],
        ),
        ("PUT", "/v1/lists/allow/ip/somewhere", Value::Null, &["neither an address nor a network"]),
    ] {
        let refused = send(&service, method, path, &body);
        assert_eq!(refused.status, 422, "{method} {path} {body}: {refused:?}");
        for reason in reasons {
            assert!(detail(&refused).contains(reason), "{reason}: {refused:?}");
        }
    }
    let other = send(&service, "PUT", "/v1/rules/per-user", &per_user("other", 1));
    assert_eq!(other.status, 400, "{other:?}");
    assert!(detail(&other).contains("other") && detail(&other).contains("per-user"), "{other:?}");
    assert_eq!(exported(&service), before);
}

#[test]
fn what_is_not_there_is_not_found() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    done(&service, "POST", "/v1/rules", &per_user("per-user", 1));
    for (method, path, body) in [
        ("GET", "/v1/rules/none", Value::Null),
        ("PUT", "/v1/rules/none", per_user("none", 1)),
        ("PATCH", "/v1/rules/none", json!({"enabled": true})),
        ("DELETE", "/v1/rules/none", Value::Null),
        ("POST", "/v1/rules/none/promote", Value::Null),
        ("GET", "/v1/rules/", Value::Null),
        ("GET", "/v1/rules/per-user/none", Value::Null),
        ("GET", "/v1/ruleset/none", Value::Null),
        ("GET", "/v1/ruleset?revision=9", Value::Null),
        ("POST", "/v1/ruleset/revert", json!({"to": 9})),
        ("GET", "/v1/overrides/per-user%7Cuser=ann", Value::Null),
        ("PUT", "/v1/overrides/none%7Cuser=ann", json!({"verdict": "block"})),
        ("PUT", "/v1/overrides/per-user", json!({"verdict": "block"})),
        ("PUT", "/v1/overrides/", json!({"verdict": "block"})),
        ("PUT", "/v1/lists/maybe/user/ann", Value::Null),
        ("DELETE", "/v1/lists/allow/user/ann", Value::Null),
        ("PUT", "/v1/lists/allow", Value::Null),
    ] {
        let reply = send(&service, method, path, &body);
        assert_eq!(reply.status, 404, "{method} {path}: {reply:?}");
    }
    for (method, path, allowed) in [
        ("DELETE", "/v1/rules", "GET, POST"),
        ("POST", "/v1/rules/per-user", "GET, PUT, PATCH, DELETE"),
        ("GET", "/v1/rules/per-user/promote", "POST"),
        ("POST", "/v1/ruleset", "GET, PUT"),
        ("DELETE", "/v1/ruleset/history", "GET"),
        ("PUT", "/v1/ruleset/revert", "POST"),
        ("POST", "/v1/overrides", "GET"),
        ("POST", "/v1/overrides/per-user%7Cuser=ann", "GET, PUT, DELETE"),
        ("POST", "/v1/lists", "GET"),
        ("GET", "/v1/lists/allow/user/ann", "PUT, DELETE"),
        ("POST", "/v1/candidates", "GET"),
    ] {
        let reply = send(&service, method, path, &Value::Null);
        assert_eq!((reply.status, reply.header("allow")), (405, Some(allowed)), "{method} {path}");
    }
    for path in [
        "/v1/ruleset?revision=x",
        "/v1/ruleset?what=1",
        "/v1/ruleset/history?limit=x",
        "/v1/overrides?what=1",
        "/v1/overrides/%ff",
    ] {
        assert_eq!(service.get(path).status, 400, "{path}");
    }
    assert_eq!(service.get("/v1/ruleset").header("etag"), Some("\"1\""));
}

/// Any text is either refused with a reason or stored unchanged.
#[test]
fn odd_texts_are_refused_or_kept() {
    let scene = Scene::start();
    let service = scene.service(&[]);
    done(&service, "POST", "/v1/rules", &per_user("per-user", 1));
    let long = "x".repeat(64 * 1024);
    let texts = [
        "'; DROP TABLE rate_limit_rules; --",
        "\"quoted\" $1 $$ \\' %s",
        "a\0b",
        "\u{1}\u{1f}\u{7f}",
        "tab\tand\nline\r\n",
        "\u{feff}☂\u{10ffff}\u{fffd}",
        "null",
        "{}",
        " ",
        "",
        &long,
    ];
    for text in texts {
        let shown: String = text.chars().take(40).collect();
        let mut rule = per_user("odd", 1);
        rule["name"] = json!(text);
        rule["plan_tiers"] = json!([text]);
        keeps(&service, "/v1/rules/odd", ("POST", "/v1/rules"), rule, &shown);
        let mut rule = per_user("odd", 1);
        rule["key_pattern"] = json!(format!("{{user}}{text}"));
        rule["endpoints"] = json!([format!("/{text}")]);
        keeps(&service, "/v1/rules/odd", ("POST", "/v1/rules"), rule, &shown);
        let special = json!({"rule": "per-user", "key": {"user": text}, "verdict": "block"});
        let set =
            json!({"rules": [per_user("per-user", 1)], "overrides": [special], "block": {"user": [text]}});
        let reply = send(&service, "PUT", "/v1/ruleset", &set);
        assert!([200, 422].contains(&reply.status), "{shown:?}: {reply:?}");
        if reply.status == 200 {
            let exported = exported(&service);
            assert_eq!(
                (&exported["overrides"][0], &exported["block"]),
                (&special_of(&set), &set["block"]),
                "{shown:?}"
            );
        } else {
            assert!(!detail(&reply).is_empty());
        }
        let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for path in
            [format!("/v1/overrides/per-user%7Cuser={encoded}"), format!("/v1/lists/block/user/{encoded}")]
        {
            let reply = without(&service, "PUT", &path, &json!({"verdict": "block"}));
            assert!([200, 400, 404, 414, 422, 431].contains(&reply.status), "{shown:?}: {reply:?}");
        }
    }
}

fn special_of(set: &Value) -> Value {
    set["overrides"][0].clone()
}

/// Sends a rule. It is either refused with a reason, or the stored rule equals it.
fn keeps(
    service: &crate::harness::Service,
    at: &str,
    (method, path): (&str, &str),
    rule: Value,
    shown: &str,
) {
    let reply = send(service, method, path, &rule);
    if reply.status == 422 {
        assert!(!detail(&reply).is_empty());
        return;
    }
    assert_eq!(reply.status, 201, "{shown:?}: {reply:?}");
    let stored = done(service, "GET", at, &Value::Null);
    for (field, value) in rule.as_object().unwrap() {
        assert_eq!(stored[field], *value, "{shown:?}");
    }
    done(service, "DELETE", at, &Value::Null);
}
