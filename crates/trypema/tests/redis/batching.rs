//! Batched calls are decided as if they had been sent one by one, and do not affect each other's errors.
#![cfg(feature = "redis-tokio")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod calls;
mod cases;
pub(crate) mod crowd;
mod leaving;
pub(crate) mod lockstep;
pub(crate) mod on_redis;
mod sharing;
mod wrong_keys;
mod yielding;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::redis::RedisLimiter;
use trypema::strategy::Leasable;
use trypema::{FixedWindowLimit, RateLimiter, TokenBucketLimits, TokenLimit};
use trypema_testkit::blocking::{self, connect, key, runtime, wait_for};
use trypema_testkit::random::Random;
use trypema_testkit::redis::{Server, wait_until};

use crate::strategies::{Limits, Visit, each};
use calls::{Call, Told};
use crowd::Crowd;

/// The maximum number of script calls in flight. Further calls wait and share a batch.
pub(crate) const FLIGHTS: usize = 4;

/// The maximum number of callers in a wave: those that are sent alone, and those that share one script call.
const WAVE: u64 = FLIGHTS as u64 + 256;

/// The number of waves of random calls.
const WAVES: u64 = 200;

/// A limit whose window does not end during a test.
pub(crate) fn long_window(capacity: u64) -> FixedWindowLimit {
    FixedWindowLimit::new(capacity, Duration::from_secs(366 * 86_400)).unwrap()
}

pub(crate) fn limiter(url: &str) -> (Arc<ManualClock>, Arc<RateLimiter>) {
    let clock = Arc::new(ManualClock::default());
    let rl = blocking::limiter(&connect(url), "trypema", &clock).build().unwrap();
    (clock, Arc::new(rl))
}

/// The number of script calls since the server's statistics were reset.
pub(crate) fn script_calls(server: &Server) -> u64 {
    let stats = server.info("commandstats").unwrap();
    stats.text("cmdstat_evalsha").split([',', '=']).nth(1).map_or(0, |calls| calls.parse().unwrap())
}

/// Adds a caller and waits until the server has received its script call, so that the next caller is in
/// another batch.
pub(crate) fn add_alone<'a, T>(
    crowd: &mut Crowd<'a, T>,
    server: &Server,
    caller: impl Future<Output = T> + 'a,
) {
    let before = script_calls(server);
    crowd.add(caller);
    wait_until("the call to arrive", || script_calls(server) > before).unwrap();
}

/// Loads every script into Redis. A call with an unknown script is sent again and would be overtaken
/// meanwhile.
fn tell_scripts(rl: &RateLimiter, limits: &Limits) {
    struct Tell;
    impl Visit for Tell {
        fn visit<S: Leasable + Sync>(&mut self, limiter: &RedisLimiter<S>, limit: &S::Limit) {
            wait_for(limiter.take(&key("ann"), limit, 0)).unwrap();
            wait_for(limiter.peek(&key("ann"), limit, 0)).unwrap();
        }
    }
    each(rl, limits, &mut Tell);
}

/// Calls are sent in order, however the driver task divides them into batches.
#[test]
fn calls_made_together_are_answered_as_the_local_provider_answers_them_one_by_one() {
    let server = Server::start().unwrap();
    let (clock, rl) = limiter(&server.url());
    let _runtime = runtime().enter();
    let mut limits = [Limits::of(20, Duration::from_secs(60)), Limits::of(7, Duration::from_secs(60))];
    let bucket = |capacity, seconds| TokenLimit::new(capacity, Duration::from_secs(seconds)).unwrap();
    limits[1].token_bucket = TokenBucketLimits::new([bucket(7, 1), bucket(30, 60)]).unwrap();
    tell_scripts(&rl, &limits[0]);
    let mut random = Random::seeded(3);
    for wave in 0..WAVES {
        clock.advance(Duration::from_micros(random.below(8_000_000)));
        let (mut calls, mut last) = (Vec::new(), None);
        for _ in 0..random.between(1, WAVE) {
            let call = Call::random(&mut random, last);
            last = Some(call);
            calls.push(call);
        }
        let mut crowd = Crowd::new();
        for call in &calls {
            crowd.add(call.on_redis(&rl, &limits));
        }
        let on_redis: Vec<Told> = crowd.finish().into_iter().flatten().collect();
        for (number, (call, told)) in calls.iter().zip(&on_redis).enumerate() {
            assert_eq!(*told, call.on_local(&rl, &limits), "wave {wave}, call {number}: {call:?}");
        }
    }
}

#[test]
fn a_lone_call_is_one_script_call_of_one_key() {
    let server = Server::start().unwrap();
    let (_, rl) = limiter(&server.url());
    let (limit, ann) = (long_window(10), key("ann"));
    let take = || wait_for(rl.redis().fixed_window().take(&ann, &limit, 1)).unwrap();
    take();
    let monitor = server.monitor().unwrap();
    take();
    let seen = monitor.finish().unwrap();
    let calls: Vec<_> = seen.iter().filter(|line| !line.is_from_script).map(|line| &line.words).collect();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(calls[0][0], b"EVALSHA");
    assert_eq!(calls[0][2..4], [b"1".to_vec(), b"trypema:{ann}:fixed_window".to_vec()]);
}

#[test]
fn many_takes_of_one_key_share_script_calls_and_admit_exactly_the_capacity() {
    const TAKES: u64 = 1_000;
    const CAPACITY: u64 = 400;
    let server = Server::start().unwrap();
    let (_, rl) = limiter(&server.url());
    let ann = key("ann");
    wait_for(rl.redis().fixed_window().take(&ann, &long_window(CAPACITY), 0)).unwrap();
    let mut control = server.control().unwrap();
    control.command(&["CONFIG", "RESETSTAT"]).unwrap();
    let take = |_| {
        let (rl, ann) = (Arc::clone(&rl), ann.clone());
        runtime().spawn(async move {
            let limit = long_window(CAPACITY);
            let decision = rl.redis().fixed_window().take(&ann, &limit, 1).await.unwrap();
            decision.is_allowed().then(|| decision.remaining())
        })
    };
    let takes: Vec<_> = (0..TAKES).map(take).collect();
    let left: Vec<u64> = takes.into_iter().filter_map(|take| wait_for(take).unwrap()).collect();
    assert_eq!(left.len() as u64, CAPACITY);
    assert_eq!(left.into_iter().collect::<BTreeSet<_>>(), (0..CAPACITY).collect(), "one after the other");
    let calls = script_calls(&server);
    println!("{TAKES} takes in {calls} script calls");
    assert!(calls < TAKES / 5, "{calls} script calls");
}
