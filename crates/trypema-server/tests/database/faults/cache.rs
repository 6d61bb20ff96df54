//! The rule cache in Redis.

use serde_json::json;
use trypema_testkit::redis::{self, FaultProxy, wait_until};

use super::{FAILURES, ready, refused_start, wait_until_ready, wait_until_stale};
use crate::harness::Service;
use crate::scene::{Scene, done, per_user};

const KEY: &str = "trypema:rules";
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// A database, and a Redis with the cache of its rules.
struct Kept {
    redis: redis::Server,
    scene: Scene,
}

impl Kept {
    fn start() -> Self {
        Self { redis: redis::Server::start().unwrap(), scene: Scene::start() }
    }

    fn service(&self, address: &str) -> Service {
        let url = self.redis.url();
        let flags =
            ["--database-url", address, "--provider", "memory", "--redis-url", &url, "--rules-poll", "1s"];
        Service::start(&flags)
    }

    fn command(&self, words: &[&str]) -> redis::Reply {
        self.redis.control().unwrap().command(words).unwrap()
    }

    /// Returns a field of the cache entry.
    fn field(&self, name: &str) -> String {
        self.command(&["HGET", KEY, name]).text()
    }

    fn wait_for(&self, name: &str, value: &str) {
        wait_until(&format!("{name} to be kept as {value}"), || self.field(name) == value).unwrap();
    }

    /// Whether the entry expires in a week, less the time since the last poll.
    fn is_kept_for_a_week(&self) -> bool {
        let left_ms = self.command(&["PTTL", KEY]).integer().unwrap();
        assert!(left_ms <= 7 * DAY_MS, "{left_ms}");
        left_ms > 7 * DAY_MS - DAY_MS / 10
    }
}

#[test]
fn rules_are_kept_for_a_week_after_every_poll() {
    let kept = Kept::start();
    let service = kept.service(&kept.scene.database.url());
    done(&service, "POST", "/v1/rules", &per_user("per-user", 10));
    kept.wait_for("revision", "1");
    assert!(kept.is_kept_for_a_week());
    kept.command(&["EXPIRE", KEY, "100"]);
    wait_until("them to be kept for longer", || kept.is_kept_for_a_week()).unwrap();
    // A deleted entry is written again.
    kept.command(&["DEL", KEY]);
    kept.wait_for("revision", "1");
    assert!(kept.field("rules").contains("per-user") && kept.is_kept_for_a_week());
}

/// Two databases share a Redis and a prefix by mistake. Their rules must not mix.
#[test]
fn kept_rules_of_another_database_do_not_win() {
    let kept = Kept::start();
    let other = Scene::start();
    for limit in 10..20 {
        let rule = format!("('by-hand-{limit}', 'user', 'fixed_window', {limit}, 60)");
        let columns = "(id, scope, algorithm, limit_count, window_seconds)";
        other.database.sql(&format!("INSERT INTO rate_limit_rules {columns} VALUES {rule}")).unwrap();
    }
    let stranger = kept.service(&other.database.url());
    kept.wait_for("revision", "10");
    let service = kept.service(&kept.scene.database.url());
    done(&service, "POST", "/v1/rules", &per_user("per-user", 10));
    let ours = |body: &serde_json::Value| (body["rules_revision"].clone(), body["rules_from"].clone());
    assert_eq!(ours(&ready(&service)), (json!(1), json!("database")));
    // Each server overwrites the entry with its own rules when it polls.
    kept.wait_for("revision", "1");
    kept.wait_for("revision", "10");
    kept.scene.database.kill_9().unwrap();
    kept.wait_for("revision", "10");
    // After the second failed poll, the server has certainly seen the other database's entry.
    let failures = service.metric(FAILURES);
    wait_until("the database to be missed", || service.metric(FAILURES) >= failures + 2.0).unwrap();
    assert_eq!(ours(&ready(&service)), (json!(1), json!("database")), "it goes on with its own");
    assert_eq!(ready(&stranger)["rules_revision"], 10);
}

#[test]
fn kept_rules_that_are_garbage_stop_nobody_who_has_a_database() {
    let kept = Kept::start();
    let address = kept.scene.database.url();
    let first = kept.service(&address);
    done(&first, "POST", "/v1/rules", &per_user("per-user", 10));
    kept.wait_for("revision", "1");
    drop(first);
    let garbage: [&[&str]; 4] = [
        &["HSET", KEY, "rules", "garbage"],
        &["HSET", KEY, "revision", "banana"],
        &["HDEL", KEY, "revision"],
        &["SET", KEY, "garbage"],
    ];
    for words in garbage {
        kept.command(words);
        let service = kept.service(&address);
        let body = ready(&service);
        assert_eq!(
            (&body["rules_from"], &body["rules_revision"]),
            (&json!("database"), &json!(1)),
            "{words:?}: {body}"
        );
        // An invalid entry is overwritten, because no server could start from it.
        wait_until(&format!("rules to be kept again after {words:?}"), || {
            let reply = kept.redis.control().unwrap().raw(&["HGET", KEY, "rules"]).unwrap();
            reply.text().contains("per-user") && kept.field("revision") == "1"
        })
        .unwrap();
    }
    kept.command(&["HSET", KEY, "rules", "garbage"]);
    kept.scene.database.kill_9().unwrap();
    let url = kept.redis.url();
    let (code, log) =
        refused_start(&["--database-url", &address, "--provider", "memory", "--redis-url", &url]);
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("the rule cache in Redis is malformed") && log.contains("the database"), "{log}");
}

/// One server reaches the database, the other only Redis.
#[test]
fn a_server_without_its_database_takes_what_others_keep() {
    let kept = Kept::start();
    let database = &kept.scene.database;
    let proxy = FaultProxy::start(database.addr()).unwrap();
    let well = kept.service(&database.url());
    let cut_off = kept.service(&kept.scene.url_through(&proxy));
    done(&well, "POST", "/v1/rules", &per_user("per-user", 10));
    wait_until_ready(&cut_off, "rules_revision", &json!(1));
    proxy.refuse();
    done(&well, "PUT", "/v1/rules/per-user", &per_user("per-user", 3));
    wait_until_ready(&cut_off, "rules_revision", &json!(2));
    assert_eq!(ready(&cut_off)["rules_from"], "cache");
    assert_eq!(cut_off.get("/v1/keys/per-user%7Cuser=ann").json()["limit"], 3);
    wait_until_stale(&cut_off, 2);
    proxy.heal();
    wait_until_ready(&cut_off, "rules_from", &json!("database"));
    assert_eq!(ready(&cut_off)["rules_revision"], 2);
}
