//! One primary, two replicas and three sentinels: calls follow the primary.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::sync::Arc;
use std::time::Duration;

use trypema::RateLimiter;
use trypema_testkit::blocking::{connect, key, wait_for};
use trypema_testkit::redis::{Sentinel, Server};

use crate::cluster::load::{Load, used, wide_limit};
use crate::server_of::port_of;

const KEYS: [&str; 2] = ["ann", "bob"];

/// Two seconds after the servers have agreed, with an allowance for a machine that does other work. `cargo xtask
/// soak faults` measures recovery.
const RECOVERY: Duration = Duration::from_secs(2 + 18);
/// A deadline that calls to a dead server exceed soon.
const DEADLINE: Duration = Duration::from_millis(200);
/// The number of takes that are verified at the new primary.
const COUNTED: u64 = 50;

fn limiter(url: &str, deadline: Duration) -> Arc<RateLimiter> {
    Arc::new(RateLimiter::builder().redis(connect(url)).redis_deadline(deadline).build().unwrap())
}

/// The units that the server itself has counted.
fn used_at(server: &Server, name: &str) -> u64 {
    used(&limiter(&server.url(), Duration::from_secs(20)), name)
}

/// Asserts that calls reach `primary` and are counted there, once.
fn assert_counted_at(primary: &Server, rl: &RateLimiter) {
    let before = used_at(primary, "later");
    let mut admitted = 0;
    let mut unanswered = 0;
    while admitted < COUNTED {
        match wait_for(rl.redis().absolute().take(&key("later"), &wide_limit(), 1)) {
            Ok(_) => admitted += 1,
            Err(_) => unanswered += 1,
        }
        assert!(unanswered < COUNTED, "calls do not go on");
    }
    let counted = used_at(primary, "later") - before;
    assert!((admitted..=admitted + unanswered).contains(&counted), "{admitted} admitted, {counted} counted");
}

/// Changes the primary with `change` under load.
fn is_followed(change: impl FnOnce(&Sentinel)) {
    let sentinel = Sentinel::start().unwrap();
    let rl = limiter(&sentinel.url(), DEADLINE);
    let load = Load::start(&rl, &KEYS);
    let old = sentinel.primary().unwrap();
    change(&sentinel);
    let new = sentinel.primary().unwrap();
    assert_ne!(new.port(), old.port());
    let recovery = load.until_all_succeed();
    println!("calls went on {recovery:?} after the sentinels agreed");
    assert!(recovery < RECOVERY, "{recovery:?}");
    assert_counted_at(new, &rl);
    let stopped = load.stop();
    for name in KEYS {
        let (outcome, used) = (stopped.outcome(name), used_at(new, name));
        assert!(used <= outcome.admitted + outcome.unknown, "{name}: {used} used, {outcome:?}");
    }
}

#[test]
fn a_forced_failover_is_followed_and_nothing_is_counted_twice() {
    is_followed(|sentinel| sentinel.failover().unwrap());
}

#[test]
fn a_killed_primary_is_replaced_and_nothing_is_counted_twice() {
    is_followed(|sentinel| {
        sentinel.kill_primary().unwrap();
        sentinel.wait_until_settled().unwrap();
    });
}

#[test]
fn the_server_of_a_key_is_the_primary_of_now() {
    let sentinel = Sentinel::start().unwrap();
    let connection = connect(&sentinel.url());
    let old = sentinel.primary().unwrap().port();
    assert_eq!(port_of(&connection, "ann"), old);
    sentinel.failover().unwrap();
    let new = sentinel.primary().unwrap().port();
    assert_ne!(new, old);
    assert_eq!(port_of(&connection, "ann"), new);
}
