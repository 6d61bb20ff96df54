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
    /// Empty if the database accepts the value, which the compiler alone can refuse.
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
    constraints: "DROP CONSTRAINT limit_count_is_allowed",
    value: "limit_count = 0",
    reason: "limit",
    good: "limit_count = 1000000",
};
/// A field that this version does not know.
const UNKNOWN: Bad = Bad {
    constraints: "DROP CONSTRAINT extra_is_an_object_with_known_keys",
    value: "extra = '{\"shape\": \"round\"}'",
    reason: "extra.shape: unknown field",
    good: "extra = '{}'",
};
const OF_ANOTHER_TYPE: Bad = Bad {
    constraints: "",
    value: "extra = '{\"postpaid\": \"yes\"}'",
    reason: "extra.postpaid: need true or false, not \"yes\"",
    good: "extra = '{}'",
};
/// Servers have a list of zones; the database has another one, and is not asked.
const OUT_OF_BOUNDS: Bad = Bad {
    constraints: "",
    value: "window_seconds = NULL, extra = '{\"per\": \"day\", \"zone\": \"Europe/Nowhere\"}'",
    reason: "unknown time zone \"Europe/Nowhere\"",
    good: "window_seconds = 60, extra = '{}'",
};
/// Nobody knows whether such a rule is meant to be in force.
const WITHOUT_A_VALUE: Bad = Bad {
    constraints: "ALTER COLUMN enabled DROP NOT NULL",
    value: "enabled = NULL",
    reason: "enabled: is NULL",
    good: "enabled = true",
};

#[test]
fn a_row_that_cannot_be_read_keeps_the_last_good_rules() {
    keeps_the_last_good_rules(&UNREADABLE);
}

#[test]
fn a_row_that_is_no_rule_keeps_the_last_good_rules() {
    keeps_the_last_good_rules(&INVALID);
}

#[test]
fn a_field_of_a_newer_version_keeps_the_last_good_rules() {
    keeps_the_last_good_rules(&UNKNOWN);
}

#[test]
fn a_field_of_another_type_keeps_the_last_good_rules() {
    keeps_the_last_good_rules(&OF_ANOTHER_TYPE);
}

#[test]
fn a_field_out_of_bounds_keeps_the_last_good_rules() {
    keeps_the_last_good_rules(&OUT_OF_BOUNDS);
}

fn asked(service: &Service, method: &str, path: &str, body: &str) -> Reply {
    service.admin_client().send(method, path, &TOKEN, body)
}

fn spoil(scene: &Scene, bad: &Bad) {
    if !bad.constraints.is_empty() {
        scene.database.sql(&format!("ALTER TABLE rate_limit_rules {}", bad.constraints)).unwrap();
    }
    scene.database.sql(&format!("UPDATE rate_limit_rules SET {}", bad.value)).unwrap();
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
    spoil(&scene, bad);
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
    for bad in [UNREADABLE, INVALID, UNKNOWN, OF_ANOTHER_TYPE, OUT_OF_BOUNDS, WITHOUT_A_VALUE] {
        spoil(&scene, &bad);
        wait_until_ready(&service, "rules_refused", &json!(true));
        let other = asked(&service, "PUT", "/v1/lists/block/user/mallory", "");
        assert_eq!(other.status, 422, "{other:?}");
        let detail = other.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("per-user") && detail.contains(bad.reason), "{detail}");
        let repair = asked(&service, "PUT", "/v1/rules/per-user", &rule().to_string());
        assert_eq!(repair.status, 200, "{repair:?}");
        wait_until_ready(&service, "rules_refused", &json!(false));
        wait_until_current(&service);
    }
}

#[test]
fn an_override_that_cannot_be_read_is_named_and_deleted_by_its_key_and_numbers_are_repaired() {
    let scene = Scene::start();
    let service = scene.service(&["--rules-poll", "1s", "--admin-token", "secret-of-the-test"]);
    assert_eq!(asked(&service, "POST", "/v1/rules", &rule().to_string()).status, 201);
    let by_hand = |statement: &str, is_refused: bool| {
        scene.database.sql(statement).unwrap();
        wait_until_ready(&service, "rules_refused", &json!(is_refused));
    };
    by_hand(
        r#"INSERT INTO rate_limit_overrides (rule_id, key, verdict, extra)
           VALUES ('per-user', '{"user": "ann"}', 'block', '{"hold": "5m"}')"#,
        true,
    );
    let reason = asked(&service, "GET", "/readyz", "").json()["refused_rules"].as_str().unwrap().to_owned();
    let expected = r#"override of rule "per-user" for {"user":"ann"}: extra.hold: a verdict has no numbers"#;
    assert!(reason.contains(expected), "{reason}");
    by_hand("UPDATE rate_limit_overrides SET extra = '{}'", false);
    by_hand(r#"UPDATE rate_limit_overrides SET extra = '{"hold": "5m"}'"#, true);
    let other = asked(&service, "DELETE", "/v1/overrides/per-user%7Cuser=bob", "");
    assert_eq!(other.status, 404, "{other:?}");
    let deleted = asked(&service, "DELETE", "/v1/overrides/per-user%7Cuser=ann", "");
    assert_eq!(deleted.status, 200, "{deleted:?}");
    assert_eq!(deleted.json()["changes"][0]["kind"], "override", "{deleted:?}");
    wait_until_ready(&service, "rules_refused", &json!(false));
    assert_eq!(scene.database.sql("SELECT count(*) FROM rate_limit_overrides").unwrap().trim(), "0");
    // In jsonb, 28.0 equals 28.
    let starts = |day: &str| {
        format!(
            r#"UPDATE rate_limit_rules SET window_seconds = NULL, extra = '{{"per": "month", "starts": {day}}}'"#
        )
    };
    by_hand(&starts("28.0"), true);
    by_hand(&starts("28"), false);
}
