//! A signal under load.

use std::thread;
use std::time::Duration;

use trypema_testkit::redis::Server;

use super::caller::{Called, call};
use crate::harness::Service;
use crate::timing::Stopwatch;

const CONNECTIONS: usize = 16;
/// The time until every connection is under full load.
const SWING: Duration = Duration::from_millis(400);
/// A request sent at least this long before the signal has been received when the signal arrives.
const MARGIN: Duration = Duration::from_millis(200);
/// Less than the shutdown deadline of 10 s, which nothing here needs.
const SOON: Duration = Duration::from_secs(5);
const LIMIT: u64 = 1_000_000;
const RULES: &str = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 1000000, window: 30d}}}
";

#[test]
fn a_signal_under_load_loses_no_answer_in_memory() {
    for signal in ["TERM", "INT"] {
        stopped(Service::with_rules(RULES, &[]), signal);
    }
}

#[test]
fn a_signal_under_load_loses_no_answer_in_redis() {
    let redis = Server::start().unwrap();
    let url = redis.url();
    let called =
        stopped(Service::with_rules(RULES, &["--redis-url", &url, "--redis-deadline", "2s"]), "TERM");
    is_counted(&url, "redis", &called);
}

/// The server returns its unspent leased units before it exits, so the next server sees them at once.
#[test]
fn a_signal_under_load_loses_no_answer_and_no_lease() {
    for next in ["redis", "hybrid"] {
        let redis = Server::start().unwrap();
        let url = redis.url();
        // A long deadline for Redis, so that a busy machine causes no undecided request.
        let flags = ["--provider", "hybrid", "--redis-url", &url, "--redis-deadline", "2s"];
        let called = stopped(Service::with_rules(RULES, &flags), "TERM");
        is_counted(&url, next, &called);
    }
}

/// Stops a server under load and returns the outcomes of its clients.
fn stopped(mut service: Service, signal: &str) -> Vec<Called> {
    let watch = Stopwatch::start();
    let callers: Vec<_> = (0..CONNECTIONS).map(|_| call(service.address, watch)).collect();
    thread::sleep(SWING);
    let signalled_at = watch.elapsed();
    service.program.signal(signal).unwrap();
    let ended = service.program.end().unwrap();
    let took = watch.elapsed() - signalled_at;
    let called: Vec<Called> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    let allowed: u64 = called.iter().map(|called| called.allowed).sum();
    println!("{allowed} allowed, then {signal}: ended after {took:?}");
    assert_eq!(ended.code(), Some(0), "{}", service.program.log());
    assert!(took < SOON, "{took:?}");
    assert!(called.iter().all(|called| called.allowed > 0), "{called:?}");
    for unanswered_at in called.iter().filter_map(|called| called.unanswered_at) {
        assert!(
            unanswered_at + MARGIN >= signalled_at,
            "sent at {unanswered_at:?}, {signal} at {signalled_at:?}"
        );
    }
    assert!(!service.program.log().contains("panicked"), "{}", service.program.log());
    called
}

/// Asserts that another server sees every allowed unit, and beyond them only requests without a response.
fn is_counted(url: &str, provider: &str, called: &[Called]) {
    let next =
        Service::with_rules(RULES, &["--provider", provider, "--redis-url", url, "--redis-deadline", "2s"]);
    let remaining = next.get("/v1/keys/per-user%7Cuser=ann").json()["remaining"].as_u64().unwrap();
    let counted = LIMIT - remaining;
    let allowed: u64 = called.iter().map(|called| called.allowed).sum();
    let unanswered = called.iter().filter(|called| called.unanswered_at.is_some()).count() as u64;
    println!("{counted} counted for {allowed} answers, {unanswered} without one");
    assert!(
        (allowed..=allowed + unanswered).contains(&counted),
        "{counted} are counted for {allowed} + {unanswered}"
    );
}
