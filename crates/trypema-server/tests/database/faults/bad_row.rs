//! A row that bypasses the constraints.

use serde_json::json;
use trypema_testkit::redis::{self, wait_until};

use super::load::{Load, rule};
use super::{ready, refused_start, wait_until_current, wait_until_ready, wait_until_stale};
use crate::client::Reply;
use crate::harness::Service;
use crate::scene::Scene;

const OK: &str = "trypema_rules_reloads_total{result=\"ok\"}";
const ERROR: &str = "trypema_rules_reloads_total{result=\"error\"}";
const TOKEN: [(&str, &str); 2] = [("authorization", "Bearer secret-of-the-test"), ("if-match", "*")];

/// An invalid value of a row: the constraints to drop, the value, the reported error, and the repair.
struct Bad {
    constraints: &'static str,
    value: &'static str,
    reason: &'static str,
    good: &'static str,
}

/// A row that cannot be parsed.
const UNREADABLE: Bad = Bad {
    constraints: "DROP CONSTRAINT scope_is_known, DROP CONSTRAINT key_pattern_fits_the_scope",
    value: "scope = 'galaxy'",
    reason: "galaxy",
    good: "scope = 'user'",
};
/// A row that can be parsed, but is not a valid rule.
const INVALID: Bad = Bad {
    constraints: "DROP CONSTRAINT limit_count_and_window_seconds_are_allowed, DISABLE TRIGGER explain",
    value: "limit_count = 0",
    reason: "limit",
    good: "limit_count = 1000000",
};

#[test]
fn a_row_that_cannot_be_read_keeps_the_last_good_rules() {
    keeps_the_last_good_rules(&UNREADABLE);
}

#[test]
fn a_row_that_is_no_rule_keeps_the_last_good_rules() {
    keeps_the_last_good_rules(&INVALID);
}

fn asked(service: &Service, method: &str, path: &str, body: &str) -> Reply {
    service.admin_client().send(method, path, &TOKEN, body)
}

fn keeps_the_last_good_rules(bad: &Bad) {
    let (scene, redis) = (Scene::start(), redis::Server::start().unwrap());
    let url = redis.url();
    let flags = [
        "--provider",
        "memory",
        "--redis-url",
        &url,
        "--rules-poll",
        "1s",
        "--admin-token",
        "secret-of-the-test",
    ];
    let service = scene.service(&flags);
    assert_eq!(asked(&service, "POST", "/v1/rules", &rule().to_string()).status, 201);
    let load = Load::start(&service);
    let (loaded, refused) = (service.metric(OK), service.metric(ERROR));
    scene.database.sql(&format!("ALTER TABLE rate_limit_rules {}", bad.constraints)).unwrap();
    scene.database.sql(&format!("UPDATE rate_limit_rules SET {}", bad.value)).unwrap();
    wait_until_ready(&service, "rules_refused", &json!(true));
    assert_eq!(ready(&service).get("refused_rules"), None, "it is for those with a token");
    let reason = asked(&service, "GET", "/readyz", "").json()["refused_rules"].as_str().unwrap().to_owned();
    assert!(reason.contains("per-user") && reason.contains(bad.reason), "{reason}");
    // Three seconds contain at least two polls.
    wait_until_stale(&service, 3);
    assert_eq!((service.metric(OK), service.metric(ERROR)), (loaded, refused + 1.0), "it is told once");
    assert_eq!(ready(&service)["rules_revision"], 1, "the last good ones are in force");
    load.wait_for_many();

    starts_without_it(&scene, bad, &flags);

    scene.database.sql(&format!("UPDATE rate_limit_rules SET {}", bad.good)).unwrap();
    wait_until_ready(&service, "rules_refused", &json!(false));
    wait_until_current(&service);
    assert_eq!(ready(&service)["rules_revision"], 3);
    assert_eq!((service.metric(OK), service.metric(ERROR)), (loaded + 1.0, refused + 1.0));
    load.stop();
}

/// A starting server takes the last good rules from Redis. Without a cache it reports the error and exits
/// with a code that means a retry is useless.
fn starts_without_it(scene: &Scene, bad: &Bad, flags: &[&str]) {
    let late = scene.service(flags);
    let body = ready(&late);
    assert_eq!((&body["rules_from"], &body["rules_revision"]), (&json!("cache"), &json!(1)), "{body}");
    assert_eq!(body["rules_refused"], true, "{body}");
    let named = asked(&late, "GET", "/readyz", "").json()["refused_rules"].as_str().unwrap().to_owned();
    assert!(named.contains("per-user") && named.contains(bad.reason), "{named}");
    wait_until("the row to be counted", || late.metric(ERROR) == 1.0).unwrap();

    let (code, log) = refused_start(&["--database-url", &scene.database.url()]);
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains("per-user") && log.contains(bad.reason), "{log}");
}

/// An editor may repair the row, also by writing the rule anew.
#[test]
fn a_bad_row_can_be_repaired_through_the_service() {
    let scene = Scene::start();
    let service = scene.service(&["--rules-poll", "1s", "--admin-token", "secret-of-the-test"]);
    assert_eq!(asked(&service, "POST", "/v1/rules", &rule().to_string()).status, 201);
    for bad in [UNREADABLE, INVALID] {
        scene.database.sql(&format!("ALTER TABLE rate_limit_rules {}", bad.constraints)).unwrap();
        scene.database.sql(&format!("UPDATE rate_limit_rules SET {}", bad.value)).unwrap();
        wait_until_ready(&service, "rules_refused", &json!(true));
        let other = asked(&service, "PUT", "/v1/lists/block/user/mallory", "");
        assert_eq!(other.status, 422, "{other:?}");
        assert!(other.body.contains("per-user") && other.body.contains(bad.reason), "{other:?}");
        let repair = asked(&service, "PUT", "/v1/rules/per-user", &rule().to_string());
        assert_eq!(repair.status, 200, "{repair:?}");
        wait_until_ready(&service, "rules_refused", &json!(false));
        wait_until_current(&service);
    }
}
