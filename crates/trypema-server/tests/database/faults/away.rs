//! A database that is killed, stopped, slow, or restarted.

use std::thread;
use std::time::Duration;

use serde_json::Value;
use trypema_testkit::redis::{FaultProxy, wait_until};

use super::load::{Load, rule};
use super::{FAILURES, timed, wait_until_current, wait_until_stale};
use crate::harness::Service;
use crate::scene::{Scene, done, per_user, send};

/// The maximum duration of an edit, including one that fails.
const EDIT_MOST: Duration = Duration::from_secs(15);
const SLOW: Duration = Duration::from_secs(2);

/// A server that reaches the database through a proxy, with a client that checks all the time.
struct Stage {
    load: Load,
    service: Service,
    proxy: FaultProxy,
    scene: Scene,
}

impl Stage {
    fn start() -> Self {
        let scene = Scene::start();
        let proxy = FaultProxy::start(scene.database.addr()).unwrap();
        let service = Service::start(&["--database-url", &scene.url_through(&proxy), "--rules-poll", "1s"]);
        done(&service, "POST", "/v1/rules", &rule());
        Self { load: Load::start(&service), service, proxy, scene }
    }

    /// During a fault, checks succeed, edits fail in time, and `/readyz` and `/v1/rules` report the rules in
    /// force and their age.
    fn is_without_database(&self) {
        let failures = self.service.metric(FAILURES);
        self.load.wait_for_many();
        wait_until_stale(&self.service, 2);
        thread::scope(|scope| {
            for (method, path, body) in [
                ("POST", "/v1/rules", per_user("another", 2_000_000)),
                ("GET", "/v1/rules/per-user", Value::Null),
                ("GET", "/v1/ruleset/history", Value::Null),
            ] {
                scope.spawn(move || self.is_refused(method, path, &body));
            }
        });
        assert_eq!(self.service.get("/v1/rules").json()["rules"][0]["id"], "per-user");
        wait_until("the failures to be counted", || self.service.metric(FAILURES) > failures).unwrap();
    }

    fn is_refused(&self, method: &str, path: &str, body: &Value) {
        let (reply, took) = timed(|| send(&self.service, method, path, body));
        assert_eq!(
            (reply.status, reply.header("retry-after")),
            (503, Some("1")),
            "{method} {path}: {reply:?}"
        );
        assert!(took <= EDIT_MOST, "{method} {path} took {took:?}");
        // The address of the database is not for clients.
        assert!(!reply.body.contains("127.0.0.1"), "{reply:?}");
    }

    /// After a fault, everything is as before.
    fn has_recovered(self) {
        wait_until_current(&self.service);
        done(&self.service, "POST", "/v1/rules", &per_user("another", 2_000_000));
        self.load.wait_for_many();
        self.load.stop();
    }
}

#[test]
fn a_killed_database_delays_no_check() {
    let stage = Stage::start();
    stage.scene.database.kill_9().unwrap();
    stage.is_without_database();
    stage.scene.database.restart().unwrap();
    stage.has_recovered();
}

/// The connection that listens for changes breaks at once, and the poll after that fails: nobody waits for the next one.
#[test]
fn a_lost_database_is_noticed_before_the_next_poll() {
    let scene = Scene::start();
    let mut service = scene.service(&["--rules-poll", "10m"]);
    wait_until("the first read", || service.metric("trypema_rules_stale_seconds") < 1.0).unwrap();
    assert_eq!(service.metric(FAILURES), 0.0);
    scene.database.kill_9().unwrap();
    service.program.line("cannot read rules from PostgreSQL").unwrap();
    assert!(service.metric(FAILURES) > 0.0);
}

/// A stopped database accepts connections and answers nothing.
#[test]
fn a_stopped_database_delays_no_check() {
    let stage = Stage::start();
    stage.scene.database.stop().unwrap();
    stage.is_without_database();
    stage.scene.database.cont().unwrap();
    stage.has_recovered();
}

/// Every reply of the database is late. An edit succeeds or fails, but in time.
#[test]
fn a_slow_database_delays_no_check() {
    let stage = Stage::start();
    stage.proxy.delay(SLOW);
    stage.load.wait_for_many();
    let (reply, took) = timed(|| send(&stage.service, "POST", "/v1/rules", &per_user("late", 2_000_000)));
    assert!(matches!(reply.status, 201 | 503), "{reply:?}");
    assert!(took <= EDIT_MOST, "{took:?}");
    wait_until_stale(&stage.service, 2);
    stage.load.wait_for_many();
    stage.proxy.heal();
    // An edit that timed out may still have been committed, so the rules in force must become the stored
    // ones.
    wait_until_current(&stage.service);
    send(&stage.service, "DELETE", "/v1/rules/late", &Value::Null);
    stage.has_recovered();
}

/// Without polls: the server reads changes made during the restart when it reconnects, and hears later
/// notifications.
#[test]
fn a_restarted_database_is_followed() {
    let scene = Scene::start();
    let service = scene.service(&["--rules-poll", "1h"]);
    done(&service, "POST", "/v1/rules", &rule());
    let load = Load::start(&service);
    for limit in [7, 8] {
        scene.database.restart().unwrap();
        scene.database.sql(&insertion(limit)).unwrap();
        let id = format!("by-hand-{limit}");
        wait_until("the change to be in force", || service.get("/v1/rules").body.contains(&id)).unwrap();
    }
    done(&service, "POST", "/v1/rules", &per_user("another", 2_000_000));
    load.wait_for_many();
    load.stop();
}

fn insertion(limit: u64) -> String {
    format!(
        "INSERT INTO rate_limit_rules (id, scope, algorithm, limit_count, window_seconds)
         VALUES ('by-hand-{limit}', 'ip', 'fixed_window', {limit}, 60)"
    )
}

/// A pending edit waits for the stopped database. The shutdown waits for it no longer than
/// `--shutdown-deadline`.
#[test]
fn a_stopped_database_does_not_hold_up_the_end() {
    let scene = Scene::start();
    let mut service = scene.service(&["--shutdown-deadline", "1s", "--rules-poll", "1s"]);
    done(&service, "POST", "/v1/rules", &rule());
    scene.database.stop().unwrap();
    wait_until_stale(&service, 2);
    let mut editor = service.admin_client();
    let edit = per_user("another", 2_000_000).to_string();
    let token = service.admin.as_ref().unwrap().token.clone().unwrap();
    let headers = format!("authorization: Bearer {token}\r\ncontent-length: {}", edit.len());
    let head = format!("POST /v1/rules HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n\r\n");
    editor.write(format!("{head}{edit}").as_bytes()).unwrap();
    let (status, took) = timed(|| service.stop());
    assert!(status.success(), "{status}: {}", service.program.log());
    assert!(took <= Duration::from_secs(5), "{took:?}");
}
