//! Every key expires by the server's clock, no later than necessary, and a script accesses only its declared
//! keys.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

pub(crate) mod verbs;
pub(crate) mod watched;

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::redis::RedisLimiter;
use trypema::strategy::Leasable;
use trypema::{RateLimiter, TokenBucketLimits, TokenLimit, WindowSizeSeconds};
use trypema_testkit::blocking::{self, Blocking, connect};
use trypema_testkit::redis::{Control, Server, wait_until};
use trypema_testkit::verbs::Verbs;

use crate::strategies::{Limits, Visit, each};

/// Long, because the machine may be busy with other tests.
const DEADLINE: Duration = Duration::from_secs(20);
/// Long enough that nothing expires during a test.
const LONG: Duration = Duration::from_secs(60);
/// Short enough to wait for. The windows of absolute and suppressed are at least a second.
const SHORT: Duration = Duration::from_millis(200);

fn on_server_time(server: &Server, window: Duration) -> RateLimiter {
    let window = WindowSizeSeconds::try_from(window.as_secs().max(1)).unwrap();
    let builder = RateLimiter::builder().redis(connect(&server.url())).redis_deadline(DEADLINE);
    builder.window_size_seconds(window).build().unwrap()
}

/// Each key with its remaining time to live in milliseconds.
fn times_to_live(control: &mut Control) -> Vec<(String, i64)> {
    let (mut found, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let page = control.command(&["SCAN", &cursor, "COUNT", "1000"]).unwrap();
        for name in page.items()[1].items() {
            let left = control.command(&[b"PTTL", name.bytes()]).unwrap().integer().unwrap();
            found.push((name.text(), left));
        }
        cursor = page.items()[0].text();
        if cursor == "0" {
            return found;
        }
    }
}

/// The maximum time for which a key matters, in windows. A lease of half a window adds to the history of a
/// unit, and a reset counter lives as long as a receipt that is issued when a lease ends.
fn windows_needed(name: &str) -> f64 {
    let memory = if name.contains(":sliding_window") { 2.0 } else { 1.0 };
    if name.ends_with(":resets") { 2.0 * memory + 0.5 } else { memory + 0.5 }
}

/// An overdrawn key lives until its overdraft is paid, and so does the count of its resets.
#[test]
fn an_overdrawn_key_lives_until_its_overdraft_is_paid() {
    let server = Server::start().unwrap();
    let rl = on_server_time(&server, LONG);
    let limit = TokenBucketLimits::from(TokenLimit::new(10, Duration::from_secs(10)).unwrap());
    let bucket = Blocking(rl.redis().token_bucket());
    let assert_lives = |until_ms: i64| {
        let found = times_to_live(&mut server.control().unwrap());
        let is_it = |(_, left): &(String, i64)| (until_ms - 20_000..=until_ms).contains(left);
        assert!(found.len() == 1 && found.iter().all(is_it), "{found:?}");
    };
    assert!(bucket.take_postpaid("ann", &limit, 1_000).is_allowed());
    assert_lives(1_000_000);
    assert!(!bucket.take_postpaid("ann", &limit, 1).is_allowed());
    assert_lives(1_000_000);
    assert!(bucket.debit("ann", &limit, u64::MAX).is_allowed());
    // The largest debt: 2^53 - 1 µs.
    assert_lives(9_007_199_254_741);
    assert!(bucket.reset("ann"));
    assert_lives(9_007_199_254_741);
}

#[test]
fn after_every_verb_every_key_has_a_time_to_live_that_is_no_longer_than_needed() {
    let server = Server::start().unwrap();
    let mut control = server.control().unwrap();
    let mut kinds = std::collections::BTreeSet::new();
    verbs::run(&on_server_time(&server, LONG), LONG, |done| {
        for (name, left_ms) in times_to_live(&mut control) {
            let most_ms = 1.3 * windows_needed(&name) * LONG.as_millis() as f64 + 1_000.0;
            assert!(left_ms > 0 && left_ms as f64 <= most_ms, "after {done}: {name} has {left_ms} ms");
            let kind = name.rsplit_once('}').unwrap().1;
            kinds.insert(kind.split_inclusive(":receipt:").next().unwrap().to_owned());
        }
    });
    assert_eq!(kinds.len(), 21, "a state, resets and receipts of seven strategies: {kinds:?}");
}

#[test]
fn once_the_windows_have_passed_the_database_is_empty() {
    let server = Server::start().unwrap();
    let mut control = server.control().unwrap();
    verbs::run(&on_server_time(&server, SHORT), SHORT, |_| {});
    let is_empty = || control.command(&["DBSIZE"]).unwrap().integer() == Some(0);
    wait_until("everything to be forgotten", is_empty).unwrap();
}

/// A key whose time to live was removed by another program must not persist forever.
#[test]
fn a_key_that_lost_its_time_to_live_gets_one_with_the_next_take() {
    let server = Server::start().unwrap();
    let rl = on_server_time(&server, LONG);
    each(&rl, &Limits::of(10, LONG), &mut Persisted { control: server.control().unwrap() });
}

struct Persisted {
    control: Control,
}

impl Visit for Persisted {
    fn visit<S: Leasable + Sync>(&mut self, limiter: &RedisLimiter<S>, limit: &S::Limit) {
        let name = format!("trypema:{{ann}}:{}", S::SUFFIX);
        Blocking(limiter).take("ann", limit, 1);
        assert_eq!(self.control.command(&["PERSIST", &name]).unwrap().integer(), Some(1), "{name}");
        Blocking(limiter).take("ann", limit, 1);
        let left_ms = self.control.command(&["PTTL", &name]).unwrap().integer().unwrap();
        assert!(left_ms > 0, "{name} has {left_ms} ms");
    }
}

/// Long states are changed in place, and their time to live is not renewed with each take.
#[test]
fn a_long_state_that_lost_its_time_to_live_gets_one_with_the_next_take() {
    let server = Server::start().unwrap();
    let clock = Arc::new(ManualClock::default());
    let rl = blocking::limiter(&connect(&server.url()), "trypema", &clock).build().unwrap();
    let (limits, mut control) = (Limits::of(5_000, LONG), server.control().unwrap());
    let limiter: &RedisLimiter<trypema::strategy::Absolute> = rl.redis().absolute();
    let take = || {
        clock.advance(Duration::from_millis(10));
        Blocking(limiter).take("ann", &limits.absolute, 1);
    };
    (0..500).for_each(|_| take());
    let name = "trypema:{ann}:absolute";
    assert!(control.command(&["STRLEN", name]).unwrap().integer() > Some(2_000));
    control.command(&["PERSIST", name]).unwrap();
    take();
    let left_ms = control.command(&["PTTL", name]).unwrap().integer().unwrap();
    assert!(left_ms > 0, "{name} has {left_ms} ms");
}
