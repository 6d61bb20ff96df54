//! Faults of the database, and their effect on checks, edits and starts: a test for each row of the table of
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

/// Returns the body of `/readyz`, which must be a 200.
pub(crate) fn ready(service: &Service) -> Value {
    let reply = service.get("/readyz");
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

/// Waits until a field of `/readyz` has this value.
pub(crate) fn wait_until_ready(service: &Service, name: &str, value: &Value) {
    wait_until(&format!("{name} to be {value}"), || ready(service)[name] == *value)
        .unwrap_or_else(|error| panic!("{error}: {}", ready(service)));
}

/// Waits until the server has been unable to confirm its rules for at least `seconds` seconds.
fn wait_until_stale(service: &Service, seconds: u64) {
    wait_until("the rules to become stale", || {
        ready(service)["rules_stale_seconds"].as_u64() >= Some(seconds)
    })
    .unwrap();
    assert!(service.metric(STALE) >= seconds as f64);
}

/// Waits until the server has confirmed that its rules are current.
fn wait_until_current(service: &Service) {
    wait_until_ready(service, "rules_stale_seconds", &0.into());
    assert_eq!(ready(service)["rules_from"], "database");
}

/// Runs `work` and returns its result and its duration.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = SystemClock.now();
    let made = work();
    (made, Duration::from_micros(SystemClock.now().as_micros().saturating_sub(before.as_micros())))
}

/// Starts a server that must refuse to start with these flags, and returns its exit code and output.
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
