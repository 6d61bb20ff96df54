//! Two servers that follow the same rules.

#[path = "fleet/channels.rs"]
mod channels;
#[path = "fleet/rolling_upgrade.rs"]
mod rolling_upgrade;
#[path = "fleet/spread.rs"]
mod spread;
#[path = "fleet/storms.rs"]
mod storms;

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use trypema::clock::{Clock, SystemClock};
use trypema_testkit::redis;

use crate::harness::Service;
use crate::scene::{Scene, done, per_user};

/// The time within which a change is in force on every server, counted from the response to the change: a second,
/// with an allowance for a machine that does other work. Polls would take an hour. `cargo xtask bench reload`
/// measures the time.
const SOON: Duration = Duration::from_secs(1 + 14);
/// The pause between two polls. It leaves the processor to the servers.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
/// The deadline for Redis. It is long, so that a busy machine causes no undecided request.
const PATIENT: &str = "5s";
/// A poll interval that no test reaches.
const NEVER: &str = "1h";

/// A database, a Redis and two servers.
struct Fleet {
    servers: [Service; 2],
    redis: redis::Server,
    scene: Scene,
}

impl Fleet {
    /// Starts the fleet with a rule of 10 units per user, counters in `provider`, and no polls: servers learn
    /// of changes only from notifications.
    fn start(provider: &str) -> Self {
        let (scene, redis) = (Scene::start(), redis::Server::start().unwrap());
        let url = redis.url();
        let flags =
            ["--provider", provider, "--redis-url", &url, "--redis-deadline", PATIENT, "--rules-poll", NEVER];
        let servers = [scene.service(&flags), scene.service(&flags)];
        wait_until_they_listen(&redis, 2);
        done(&servers[0], "POST", "/v1/rules", &per_user("per-user", 10));
        soon(&servers, "the first rule", |server| limit(server) == Some(10));
        Self { servers, redis, scene }
    }
}

/// Waits until the servers are subscribed in Redis, which happens shortly after they start to serve.
fn wait_until_they_listen(redis: &redis::Server, servers: i64) {
    redis::wait_until("the servers to listen", || {
        let listeners = redis.control().unwrap().command(&["PUBSUB", "NUMSUB", "trypema:rules"]).unwrap();
        listeners.items().get(1).and_then(redis::Reply::integer) == Some(servers)
    })
    .unwrap();
}

/// Waits until `is_so` holds on every server. Fails after the maximum time for a change.
fn soon(servers: &[Service], what: &str, is_so: impl Fn(&Service) -> bool) {
    let answered = SystemClock.now();
    for (place, server) in servers.iter().enumerate() {
        while !is_so(server) {
            assert!(SystemClock.now() <= answered + SOON, "server {place} has not heard of {what}");
            thread::sleep(BETWEEN_LOOKS);
        }
    }
    assert!(SystemClock.now() <= answered + SOON, "{what} took longer than {SOON:?}");
}

/// Returns ann's counter on a server.
fn ann(server: &Service) -> Value {
    server.get("/v1/keys/per-user%7Cuser=ann").json()
}

/// Returns ann's limit, if a rule applies.
fn limit(server: &Service) -> Option<u64> {
    ann(server)["limit"].as_u64()
}

/// Takes `cost` units of ann and returns whether they were allowed.
fn spends(server: &Service, cost: u64) -> bool {
    is_allowed(server, &json!({"attributes": {"user": "ann"}, "cost": cost}))
}

/// Whether a user's next request would be allowed. Spends nothing.
fn would_pass(server: &Service, user: &str) -> bool {
    is_allowed(server, &json!({"attributes": {"user": user}, "mode": "peek"}))
}

fn is_allowed(server: &Service, question: &Value) -> bool {
    server.post("/v1/check", &question.to_string()).json()["allowed"] == json!(true)
}

/// Changes the limit through a server.
fn set_limit(server: &Service, limit: u64) {
    done(server, "PUT", "/v1/rules/per-user", &per_user("per-user", limit));
}
