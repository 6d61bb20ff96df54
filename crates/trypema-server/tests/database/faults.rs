//! What goes wrong with the database, and what becomes of checks, edits and starts meanwhile: a test for each row of the table of
//! faults.

#[path = "faults/away.rs"]
mod away;
#[path = "faults/bad_row.rs"]
mod bad_row;
#[path = "faults/cache.rs"]
mod cache;
#[path = "faults/load.rs"]
mod load;
#[path = "faults/password.rs"]
mod password;
#[path = "faults/start.rs"]
mod start;

use std::time::Duration;

use serde_json::Value;
use trypema::clock::{Clock, SystemClock};
use trypema_testkit::program::Program;
use trypema_testkit::redis::wait_until;

use crate::harness::{Service, trypema};

const FAILURES: &str = "trypema_database_failures_total";
const STALE: &str = "trypema_rules_stale_seconds";

/// What it says of itself.
pub(crate) fn ready(service: &Service) -> Value {
    let reply = service.get("/readyz");
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

/// Waits until `/readyz` has this value there.
fn wait_until_ready(service: &Service, name: &str, value: &Value) {
    wait_until(&format!("{name} to be {value}"), || ready(service)[name] == *value)
        .unwrap_or_else(|error| panic!("{error}: {}", ready(service)));
}

/// Waits until nobody has known for so many seconds whether the rules are the ones that are stored.
fn wait_until_stale(service: &Service, seconds: u64) {
    wait_until("the rules to become stale", || {
        ready(service)["rules_stale_seconds"].as_u64() >= Some(seconds)
    })
    .unwrap();
    assert!(service.metric(STALE) >= seconds as f64);
}

/// Waits until it is known that they are.
fn wait_until_current(service: &Service) {
    wait_until_ready(service, "rules_stale_seconds", &0.into());
    assert_eq!(ready(service)["rules_from"], "database");
}

/// What work makes, and how long it takes.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = SystemClock.now();
    let made = work();
    (made, Duration::from_micros(SystemClock.now().as_micros().saturating_sub(before.as_micros())))
}

/// How a service ended that was not to start with these flags: its code, and what it printed.
pub(crate) fn refused_start(flags: &[&str]) -> (Option<i32>, String) {
    let mut program = Program::start(|_| {
        let mut command = trypema();
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(flags);
        command
    })
    .unwrap();
    let ended = program.end().unwrap();
    let log = program.log();
    assert!(!log.contains("listens on") && !log.contains("panicked"), "{log}");
    (ended.code(), log)
}
