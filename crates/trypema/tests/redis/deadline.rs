//! The cost of a silent Redis for one caller, by deadline: the table of `docs/tuning.md`.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::time::Duration;

use trypema::clock::{Clock, SystemClock, Timestamp};
use trypema::{FixedWindowLimit, RateLimiter};
use trypema_testkit::blocking::{connect, key, wait_for};
use trypema_testkit::redis::{FaultProxy, Server};

/// The number of calls in a row without a reply after which the circuit breaker opens.
const BREAKER: usize = 5;

/// The time for which one caller calls in a loop.
const OBSERVED: Duration = Duration::from_secs(1);

fn since(start: Timestamp) -> Duration {
    Duration::from_micros(SystemClock.now().as_micros() - start.as_micros())
}

/// Returns the durations of the calls that one caller makes, one after the other, while Redis is silent.
fn calls_to_a_silent_redis(deadline: Duration) -> Vec<Duration> {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let builder = RateLimiter::builder().redis(connect(&proxy.url())).redis_deadline(deadline);
    let rl = builder.build().unwrap();
    let limit = FixedWindowLimit::new(1_000, Duration::from_secs(3_600)).unwrap();
    proxy.freeze();
    let (start, mut durations) = (SystemClock.now(), Vec::new());
    while since(start) < OBSERVED {
        let began = SystemClock.now();
        wait_for(rl.redis().fixed_window().take(&key("ann"), &limit, 1)).unwrap_err();
        durations.push(since(began));
    }
    durations
}

/// `--nocapture` prints the rows of the table.
#[test]
fn a_silent_redis_costs_five_deadlines_and_then_the_probes() {
    println!("| deadline ms | calls in 1 s | that waited for it | their share of the time |");
    for millis in [10, 50, 100] {
        let deadline = Duration::from_millis(millis);
        let durations = calls_to_a_silent_redis(deadline);
        let opening = &durations[..BREAKER];
        assert!(opening.iter().all(|duration| *duration >= deadline), "{deadline:?}: {opening:?}");
        let waited: Vec<Duration> = durations.iter().copied().filter(|time| *time >= deadline).collect();
        assert!(waited.len() < durations.len(), "the others fail at once");
        let share = waited.iter().sum::<Duration>().as_secs_f64() / OBSERVED.as_secs_f64() * 100.0;
        println!("| {millis} | {} | {} | {share:.0} % |", durations.len(), waited.len());
    }
}
