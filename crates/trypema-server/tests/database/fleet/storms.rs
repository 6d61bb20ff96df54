//! Storms of notifications: a server polls at most ten times a second, on connections that it keeps.

use serde_json::Value;
use trypema::clock::{Clock, SystemClock};
use trypema_testkit::redis::{self, wait_until};

use super::{NEVER, limit, set_limit, soon, wait_until_they_listen};
use crate::harness::Service;
use crate::scene::{Scene, done, per_user};

/// The number of notifications of a storm through each channel.
const NOTIFICATIONS: usize = 1_000;
/// A revision that no test reaches.
const FUTURE: u64 = 1_000_000;
/// The most polls in a second.
const POLLS_PER_SECOND: u64 = 10;

/// A database, a Redis with the cache of its rules, and a server that never polls by itself.
struct Notified {
    service: Service,
    redis: redis::Server,
    scene: Scene,
}

/// The connections that both servers have accepted, and the polls of the server, so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    redis_connections: u64,
    database_connections: u64,
    /// Each poll reads the header of the cache entry.
    polls: u64,
}

impl Notified {
    fn start() -> Self {
        let (scene, redis) = (Scene::start(), redis::Server::start().unwrap());
        let url = redis.url();
        let service = scene.service(&["--provider", "memory", "--redis-url", &url, "--rules-poll", NEVER]);
        wait_until_they_listen(&redis, 1);
        let is_listening =
            "SELECT count(*) FROM pg_stat_activity WHERE usename = 'trypema' AND query LIKE 'LISTEN%'";
        wait_until("the server to listen", || scene.database.sql(is_listening).unwrap() == "1").unwrap();
        done(&service, "POST", "/v1/rules", &per_user("per-user", 10));
        let notified = Self { service, redis, scene };
        wait_until("the cache entry", || {
            notified.command(&["HGET", "trypema:rules", "revision"]).text() == "1"
        })
        .unwrap();
        notified
    }

    fn command(&self, words: &[&str]) -> redis::Reply {
        self.redis.control().unwrap().command(words).unwrap()
    }

    /// Returns the counts, without the connection that reads them.
    fn counted(&self) -> Counted {
        let info = self.redis.info("all").unwrap();
        let calls = info.text("cmdstat_hmget").split(['=', ',']).nth(1).unwrap_or("0").to_owned();
        let sessions = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()";
        Counted {
            redis_connections: info.number("total_connections_received").unwrap(),
            database_connections: self.scene.database.sql(sessions).unwrap().parse().unwrap(),
            polls: calls.parse().unwrap(),
        }
    }

    /// Sends a storm of this revision through Redis and PostgreSQL, each notification by itself.
    fn storm(&self, revision: u64) {
        let mut control = self.redis.control().unwrap();
        let revision = revision.to_string();
        for _ in 0..NOTIFICATIONS {
            control.command(&["PUBLISH", "trypema:rules", &revision]).unwrap();
        }
        // Within one transaction, PostgreSQL would send equal notifications once.
        let storm = format!(
            "DO $$ BEGIN FOR i IN 1..{NOTIFICATIONS} LOOP PERFORM pg_notify('trypema_rules', '{revision}'); COMMIT; END LOOP; END $$"
        );
        self.scene.database.sql(&storm).unwrap();
    }

    /// Changes the limit by hand, and waits until the server has it in force: then it has received everything
    /// that PostgreSQL sent before.
    fn change(&self, to: u64) {
        self.scene.database.sql(&format!("UPDATE rate_limit_rules SET limit_count = {to}")).unwrap();
        soon(std::slice::from_ref(&self.service), "a change", |server| limit(server) == Some(to));
    }
}

fn now() -> f64 {
    SystemClock.now().as_micros() as f64 / 1e6
}

#[test]
fn notifications_of_known_revisions_cause_no_polls() {
    let notified = Notified::start();
    let before = notified.counted();
    // Each revision that the server has already read, and one that was never stored.
    notified.storm(1);
    notified.storm(0);
    notified.change(11);
    let after = notified.counted();
    // One for the change; the server that was told of it may have been about to poll once more.
    assert!(after.polls <= before.polls + 2, "{before:?}, then {after:?}");
    assert_few_connections(before, after);
}

#[test]
fn a_storm_of_notifications_causes_ten_polls_a_second_on_kept_connections() {
    let notified = Notified::start();
    let (before, began) = (notified.counted(), now());
    notified.storm(FUTURE);
    notified.change(11);
    // Counted before the time is read, so that the time is not too short.
    let after = notified.counted();
    let seconds = now() - began;
    // The first at once, and one that began before.
    let most = (seconds * POLLS_PER_SECOND as f64) as u64 + 2;
    println!("{} polls in {seconds:.1} s", after.polls - before.polls);
    assert!(after.polls <= before.polls + most, "{before:?}, then {after:?}, within {seconds} s");
    assert_few_connections(before, after);
    // A storm of texts that are no revisions is a storm, too.
    for text in ["", "x", "-1"] {
        notified.command(&["PUBLISH", "trypema:rules", text]);
    }
    notified.change(12);
    set_limit(&notified.service, 13);
    assert_eq!(limit(&notified.service), Some(13));
}

/// Connections of the test itself: one for each statement and each command. The server may replace one that it
/// has kept.
fn assert_few_connections(before: Counted, after: Counted) {
    let (redis, database) = (
        after.redis_connections - before.redis_connections,
        after.database_connections - before.database_connections,
    );
    assert!(
        redis <= 5 && database <= 10,
        "{redis} to Redis, {database} to PostgreSQL: {before:?}, then {after:?}"
    );
}

/// A kept connection may have been closed meanwhile. The server then dials again, and nobody notices.
#[test]
fn a_kept_connection_that_was_closed_is_replaced_at_once() {
    let notified = Notified::start();
    for to in 11..14 {
        notified.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        notified.scene.database.disconnect_all().unwrap();
        set_limit(&notified.service, to);
        assert_eq!(limit(&notified.service), Some(to));
        let revision = done(&notified.service, "GET", "/v1/rules", &Value::Null)["revision"].to_string();
        wait_until("the cache entry", || {
            notified.command(&["HGET", "trypema:rules", "revision"]).text() == revision
        })
        .unwrap();
    }
    let log = notified.service.program.log();
    assert!(!log.contains("cannot write the rule cache"), "{log}");
}
