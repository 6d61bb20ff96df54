//! Servers that cache rules in different formats in one Redis, as during a rolling upgrade.

use serde_json::{Map, Value, json};
use trypema_testkit::redis::{self, wait_until};

use crate::faults::{ready, refused_start};
use crate::harness::Service;
use crate::scene::{Scene, done, per_user};

const KEY: &str = "trypema:rules";
/// A cache entry of revision 2, written by a server of a version that did not number the format.
const UNNUMBERED: &str = include_str!("rolling_upgrade/unnumbered.json");
/// An address without a database.
const AWAY: &str = "postgres://nobody@127.0.0.1:1/none";

fn flags<'a>(database: &'a str, redis: &'a str) -> [&'a str; 8] {
    ["--database-url", database, "--provider", "memory", "--redis-url", redis, "--rules-poll", "1s"]
}

fn field(redis: &redis::Server, name: &str) -> String {
    redis.control().unwrap().command(&["HGET", KEY, name]).unwrap().text()
}

fn wait_for(redis: &redis::Server, name: &str, value: &str) {
    wait_until(&format!("{name} to be kept as {value}"), || field(redis, name) == value).unwrap();
}

#[test]
fn an_entry_without_a_format_is_read() {
    let redis = redis::Server::start().unwrap();
    let entry: Map<String, Value> = serde_json::from_str(UNNUMBERED).unwrap();
    for (name, value) in &entry {
        redis.control().unwrap().command(&["HSET", KEY, name, value.as_str().unwrap()]).unwrap();
    }
    let service = Service::start(&flags(AWAY, &redis.url()));
    let body = ready(&service);
    assert_eq!((&body["rules_from"], &body["rules_revision"]), (&json!("cache"), &json!(2)), "{body}");
    assert_eq!(service.get("/v1/keys/per-user%7Cuser=ann").json()["limit"], 3);
}

#[test]
fn an_entry_has_a_format_and_is_read_with_it_and_without() {
    let (scene, redis) = (Scene::start(), redis::Server::start().unwrap());
    let (address, url) = (scene.database.url(), redis.url());
    let service = Service::start(&flags(&address, &url));
    done(&service, "POST", "/v1/rules", &per_user("per-user", 10));
    wait_for(&redis, "revision", "1");
    assert_eq!(field(&redis, "format"), "1");
    let starts_from_cache = || {
        let body = ready(&Service::start(&flags(AWAY, &url)));
        assert_eq!((&body["rules_from"], &body["rules_revision"]), (&json!("cache"), &json!(1)), "{body}");
    };
    starts_from_cache();
    // A server of the previous version replaces the entry by its own.
    redis.control().unwrap().command(&["HDEL", KEY, "format"]).unwrap();
    starts_from_cache();
}

/// Only rules with properties that an older server does not know are in the newer format.
#[test]
fn rules_with_conditions_are_kept_in_the_newer_format() {
    let (scene, redis) = (Scene::start(), redis::Server::start().unwrap());
    let (address, url) = (scene.database.url(), redis.url());
    let service = Service::start(&flags(&address, &url));
    let mut rule = per_user("per-user", 10);
    rule["when"] = json!({"model": ["gpt-*"]});
    done(&service, "POST", "/v1/rules", &rule);
    wait_for(&redis, "revision", "1");
    assert_eq!(field(&redis, "format"), "2");
    let started = Service::start(&flags(AWAY, &url));
    assert_eq!(ready(&started)["rules_from"], "cache");
    assert_eq!(started.get("/v1/rules").json()["rules"][0]["when"], rule["when"]);
    done(&service, "PUT", "/v1/rules/per-user", &per_user("per-user", 10));
    wait_for(&redis, "revision", "2");
    assert_eq!(field(&redis, "format"), "1");
}

/// A server that does not know the strategy cannot read format 3.
#[test]
fn rules_with_a_concurrency_limit_are_kept_in_the_newest_format() {
    let (scene, redis) = (Scene::start(), redis::Server::start().unwrap());
    let (address, url) = (scene.database.url(), redis.url());
    let service = Service::start(&flags(&address, &url));
    let rule =
        json!({"id": "in-flight", "scope": "user", "strategy": {"concurrency": {"limit": 20, "hold": "1m"}}});
    done(&service, "POST", "/v1/rules", &rule);
    wait_for(&redis, "revision", "1");
    assert_eq!(field(&redis, "format"), "3");
    let started = Service::start(&flags(AWAY, &url));
    assert_eq!(ready(&started)["rules_from"], "cache");
    assert_eq!(started.get("/v1/rules").json()["rules"][0]["strategy"], rule["strategy"]);
    done(&service, "DELETE", "/v1/rules/in-flight", &Value::Null);
    wait_for(&redis, "revision", "2");
    assert_eq!(field(&redis, "format"), "1");
}

#[test]
fn an_entry_of_a_newer_format_is_ignored_and_stays_until_the_rules_change() {
    let (scene, redis) = (Scene::start(), redis::Server::start().unwrap());
    let (address, url) = (scene.database.url(), redis.url());
    let service = Service::start(&flags(&address, &url));
    done(&service, "POST", "/v1/rules", &per_user("per-user", 10));
    wait_for(&redis, "revision", "1");
    redis.control().unwrap().command(&["HSET", KEY, "format", "4", "rules", "of the future"]).unwrap();
    wait_until("the newer format to be told", || service.program.log().contains("format \"4\"")).unwrap();
    // A server that has just started keeps the newer entry, too.
    let second = Service::start(&flags(&address, &url));
    wait_until("the second to tell", || second.program.log().contains("format \"4\"")).unwrap();
    assert_eq!((field(&redis, "rules"), field(&redis, "format")), ("of the future".into(), "4".into()));
    let (code, log) = refused_start(&flags(AWAY, &url));
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("format \"4\"") && log.contains("the database"), "{log}");
    done(&service, "PUT", "/v1/rules/per-user", &per_user("per-user", 3));
    wait_for(&redis, "revision", "2");
    assert_eq!(field(&redis, "format"), "1");
}
