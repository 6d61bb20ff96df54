//! The format of the rules in Redis, and an entry of a newer one, as during a rolling upgrade.

use serde_json::json;
use trypema_testkit::redis::{self, wait_until};

use crate::faults::{ready, refused_start};
use crate::harness::Service;
use crate::scene::{Scene, done, per_user};

const KEY: &str = "trypema:rules";
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
fn an_entry_has_a_format_and_is_read_with_it() {
    let (scene, redis) = (Scene::start(), redis::Server::start().unwrap());
    let (address, url) = (scene.database.url(), redis.url());
    let service = Service::start(&flags(&address, &url));
    done(&service, "POST", "/v1/rules", &per_user("per-user", 10));
    wait_for(&redis, "revision", "1");
    assert_eq!(field(&redis, "format"), "1");
    let body = ready(&Service::start(&flags(AWAY, &url)));
    assert_eq!((&body["rules_from"], &body["rules_revision"]), (&json!("cache"), &json!(1)), "{body}");
}

#[test]
fn an_entry_of_a_newer_format_is_ignored_and_stays_until_the_rules_change() {
    let (scene, redis) = (Scene::start(), redis::Server::start().unwrap());
    let (address, url) = (scene.database.url(), redis.url());
    let service = Service::start(&flags(&address, &url));
    done(&service, "POST", "/v1/rules", &per_user("per-user", 10));
    wait_for(&redis, "revision", "1");
    redis.control().unwrap().command(&["HSET", KEY, "format", "2", "rules", "of the future"]).unwrap();
    wait_until("the newer format to be told", || service.program.log().contains("format \"2\"")).unwrap();
    // A server that has just started keeps the newer entry, too.
    let second = Service::start(&flags(&address, &url));
    wait_until("the second to tell", || second.program.log().contains("format \"2\"")).unwrap();
    assert_eq!((field(&redis, "rules"), field(&redis, "format")), ("of the future".into(), "2".into()));
    let (code, log) = refused_start(&flags(AWAY, &url));
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("format \"2\"") && log.contains("the database"), "{log}");
    done(&service, "PUT", "/v1/rules/per-user", &per_user("per-user", 3));
    wait_for(&redis, "revision", "2");
    assert_eq!(field(&redis, "format"), "1");
}
