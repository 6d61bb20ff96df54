//! Starting while the database is unreachable.

use serde_json::json;
use trypema_testkit::redis::{self, wait_until};

use super::load::{Load, rule};
use super::{FAILURES, ready, refused_start, wait_until_current, wait_until_ready};
use crate::harness::Service;
use crate::scene::{Scene, done, send};

const PASSWORD: &str = "right-and-secret";
const WRONG: &str = "wrong-but-secret";

#[test]
fn a_server_starts_from_the_rules_that_are_kept() {
    let (scene, redis) = (Scene::start(), redis::Server::start().unwrap());
    let url = redis.url();
    let flags = ["--provider", "memory", "--redis-url", &url, "--rules-poll", "1s"];
    let first = scene.service(&flags);
    done(&first, "POST", "/v1/rules", &rule());
    let revision = ready(&first)["rules_revision"].clone();
    wait_until("the rules to be kept", || {
        let mut control = redis.control().unwrap();
        control.command(&["HGET", "trypema:rules", "revision"]).unwrap().text() == *revision.to_string()
    })
    .unwrap();
    drop(first);
    scene.database.kill_9().unwrap();

    let mut second = scene.service(&flags);
    let body = ready(&second);
    assert_eq!((&body["rules_from"], &body["rules_revision"]), (&json!("cache"), &revision), "{body}");
    assert_eq!((&body["ready"], &body["rules_refused"]), (&json!(true), &json!(false)), "{body}");
    second.program.line("from the rule cache in Redis").unwrap();
    let load = Load::start(&second);
    wait_until("the database to be missed", || second.metric(FAILURES) >= 1.0).unwrap();
    assert_eq!(send(&second, "DELETE", "/v1/rules/per-user", &serde_json::Value::Null).status, 503);
    load.wait_for_many();
    scene.database.restart().unwrap();
    wait_until_ready(&second, "rules_from", &json!("database"));
    wait_until_current(&second);
    assert_eq!(ready(&second)["rules_revision"], revision);
    load.stop();
}

/// The exit code tells a supervisor that a retry may help.
#[test]
fn without_kept_rules_a_server_says_why_it_does_not_start() {
    let (scene, redis) = (Scene::start(), redis::Server::start().unwrap());
    scene.database.set_password(PASSWORD).unwrap();
    let (right, wrong) =
        (scene.database.url_with_password(PASSWORD), scene.database.url_with_password(WRONG));
    let url = redis.url();
    let is_told = |flags: &[&str]| {
        let (code, log) = refused_start(flags);
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains("database"), "{log}");
        assert!(!log.contains(PASSWORD) && !log.contains(WRONG), "{log}");
        log
    };
    let log = is_told(&["--database-url", &wrong]);
    assert!(log.contains("password"), "{log}");
    scene.database.kill_9().unwrap();
    is_told(&["--database-url", &right]);
    is_told(&["--database-url", &right, "--provider", "memory", "--redis-url", &url]);
    redis.kill_9().unwrap();
    is_told(&["--database-url", &right, "--provider", "memory", "--redis-url", &url]);
}

/// If the database is reachable but has no tables, the error names the command that creates them.
#[test]
fn tables_that_are_missing_are_told() {
    let database = trypema_testkit::postgres::Server::start().unwrap();
    let (code, log) = refused_start(&["--database-url", &database.url()]);
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains("trypema rules migrate"), "{log}");
    let service = {
        crate::scene::run(crate::harness::trypema().args([
            "rules",
            "migrate",
            "--database-url",
            &database.url(),
        ]));
        Service::start(&["--database-url", &database.url()])
    };
    assert_eq!(ready(&service)["rules"], 0);
}
