//! A denial by the last of five rules leaves the other four unchanged, on every provider, with 64 concurrent
//! callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use trypema::RateLimiter;
use trypema::clock::ManualClock;
use trypema::rules::{Engine, Request};
use trypema_testkit::blocking::{connect, limiter, runtime, wait_for};
use trypema_testkit::redis::{Cluster, Server};

use super::{decided_by, left, rules};

/// The rule with the last priority admits 20.
const FIVE: &str = "
rules:
  - {id: a, priority: 1, scope: user, strategy: {absolute: {limit: 1000, window: 1h}}}
  - {id: b, priority: 2, scope: ip, strategy: {token_bucket: {limits: [{limit: 1000, window: 1h}, {limit: 5000, window: 1d}]}}}
  - {id: c, priority: 3, scope: tenant, strategy: {sliding_window: {limit: 1000, window: 1h}}}
  - {id: d, priority: 4, scope: global, strategy: {abuse: {temp: {window: 1m, threshold: 1001, block: 1h}, long: {window: 1h, threshold: 9000, block: 1d}}}}
  - {id: e, priority: 5, scope: endpoint, strategy: {fixed_window: {limit: 20, window: 1h}}}
";

const REQUEST: [(&str, &str); 4] =
    [("user", "ann"), ("ip", "10.0.0.1"), ("tenant", "acme"), ("endpoint", "/x")];
const CALLERS: usize = 64;
const CALLS: usize = 5;
const ROOM: u64 = 20;

/// Makes 320 calls with 64 concurrent callers. The limit admits 20.
fn denials_leave_no_trace(engine: Engine) {
    let engine = Arc::new(engine);
    let admitted = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (engine, admitted) = (Arc::clone(&engine), Arc::clone(&admitted));
            runtime().spawn(async move {
                for _ in 0..CALLS {
                    let verdict = engine.check(&Request::new(&REQUEST)).await.unwrap();
                    admitted.fetch_add(u64::from(verdict.is_allowed()), Ordering::Relaxed);
                }
            })
        })
        .collect();
    callers.into_iter().for_each(|caller| wait_for(caller).unwrap());
    // With counters on different servers, units that are reserved and then refunded may deny other callers,
    // but never admit one too many.
    let admitted = admitted.load(Ordering::Relaxed);
    let mut spent = admitted;
    while spent < ROOM && wait_for(engine.check(&Request::new(&REQUEST))).unwrap().is_allowed() {
        spent += 1;
    }
    assert_eq!(spent, ROOM, "{admitted} were admitted at once");
    let expected = ["a", "b", "c", "d"].map(|id| (id.to_owned(), 1_000 - ROOM));
    let left_of = |engine: &Engine| left(engine, &REQUEST);
    assert_eq!(left_of(&engine)[..4], expected);
    assert_eq!(left_of(&engine)[4], ("e".to_owned(), 0));

    for _ in 0..10 {
        let denied = wait_for(engine.check(&Request::new(&REQUEST))).unwrap();
        assert_eq!(decided_by(&denied), Some("e"));
    }
    assert_eq!(left_of(&engine)[..4], expected);
}

#[test]
fn in_this_process() {
    let clock = Arc::new(ManualClock::default());
    let rl = Arc::new(RateLimiter::builder().clock(clock).build().unwrap());
    denials_leave_no_trace(Engine::local(rl, rules(FIVE)));
}

#[test]
fn on_redis() {
    let server = Server::start().unwrap();
    denials_leave_no_trace(shared(&server.url()));
}

#[test]
fn on_leases() {
    let server = Server::start().unwrap();
    let clock = Arc::new(ManualClock::default());
    let rl = limiter(&connect(&server.url()), "five", &clock).build().unwrap();
    denials_leave_no_trace(Engine::hybrid(Arc::new(rl), rules(FIVE)));
}

#[test]
fn on_a_cluster() {
    let cluster = Cluster::start().unwrap();
    denials_leave_no_trace(shared(&cluster.url()));
}

fn shared(url: &str) -> Engine {
    let clock = Arc::new(ManualClock::default());
    let rl = limiter(&connect(url), "five", &clock).redis_deadline(Duration::from_secs(20)).build().unwrap();
    Engine::redis(Arc::new(rl), rules(FIVE))
}
