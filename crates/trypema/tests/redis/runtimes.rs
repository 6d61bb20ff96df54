//! Callers in several async runtimes: each runtime has its own driver and connection, so no call depends on a runtime
//! that is not polled, or that has ended.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use trypema::redis::{OnFailure, RedisConnection, RedisFailureKind};
use trypema::{AbsoluteLimit, RateLimiter, TrypemaError};
use trypema_testkit::blocking::{key, wait_for};
use trypema_testkit::redis::{Cluster, FaultProxy, Sentinel, Server, wait_until};

use crate::batching::long_window;

const CAPACITY: u64 = 1_000_000;
/// A call that takes this long has been lost. Long, because the machine may be busy with other tests.
const DEADLINE: Duration = Duration::from_secs(20);
/// The pauses between calls, around those for which a lost connection is not dialled again.
const PAUSES_MS: [u64; 4] = [0, 10, 50, 110];
const CALLS: u64 = 20;

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A limiter whose failures are not hidden by a policy. It connects with its first call.
fn limiter(url: &str, deadline: Duration) -> Arc<RateLimiter> {
    let connection = RedisConnection::lazy(url).unwrap();
    let builder = RateLimiter::builder().redis(connection).redis_deadline(deadline);
    Arc::new(builder.on_redis_failure(OnFailure::Fail).build().unwrap())
}

/// Takes one unit. Returns the number of units that are counted now.
async fn take(rl: &RateLimiter) -> Result<u64, TrypemaError> {
    let decision = rl.redis().fixed_window().take(&key("ann"), &long_window(CAPACITY), 1).await?;
    Ok(CAPACITY - decision.remaining())
}

/// Takes one unit of many that are leased.
async fn take_leased(rl: &RateLimiter) -> Result<bool, TrypemaError> {
    let limit = AbsoluteLimit::per_window(CAPACITY, Duration::from_secs(600)).unwrap();
    Ok(rl.hybrid().absolute().take(&key("bob"), &limit, 1).await?.is_allowed())
}

fn each_take_in_a_runtime_of_its_own(url: &str) {
    let rl = limiter(url, DEADLINE);
    let mut counted = 0;
    for pause_ms in PAUSES_MS {
        for call in 0..CALLS {
            counted += 1;
            let used = one_thread().block_on(take(&rl)).map_err(|error| error.to_string());
            assert_eq!(used, Ok(counted), "call {call}, {pause_ms} ms after the last one");
            std::thread::sleep(Duration::from_millis(pause_ms));
        }
    }
}

fn two_runtimes_in_turn(url: &str) {
    let rl = limiter(url, DEADLINE);
    let runtimes = [one_thread(), one_thread()];
    for (counted, runtime) in (1..=CALLS).zip(runtimes.iter().cycle()) {
        assert_eq!(runtime.block_on(take(&rl)).map_err(|error| error.to_string()), Ok(counted));
    }
    for runtime in runtimes.iter().cycle().take(CALLS as usize) {
        assert_eq!(runtime.block_on(take_leased(&rl)).map_err(|error| error.to_string()), Ok(true));
    }
}

#[test]
fn each_take_may_have_a_runtime_of_its_own() {
    let server = Server::start().unwrap();
    each_take_in_a_runtime_of_its_own(&server.url());
    wait_for(connect_and_reset(&server.url()));
    each_take_in_a_runtime_of_its_own(&format!("{}?protocol=resp2", server.url()));
}

#[test]
fn two_runtimes_may_be_polled_in_turn() {
    let server = Server::start().unwrap();
    two_runtimes_in_turn(&server.url());
    wait_for(connect_and_reset(&server.url()));
    two_runtimes_in_turn(&format!("{}?protocol=resp2", server.url()));
}

#[test]
fn the_same_on_a_cluster() {
    let cluster = Cluster::start().unwrap();
    each_take_in_a_runtime_of_its_own(&cluster.url());
    wait_for(connect_and_reset(&cluster.url()));
    two_runtimes_in_turn(&cluster.url());
}

#[test]
fn the_same_behind_sentinels() {
    let sentinel = Sentinel::start().unwrap();
    each_take_in_a_runtime_of_its_own(&sentinel.url());
    wait_for(connect_and_reset(&sentinel.url()));
    two_runtimes_in_turn(&sentinel.url());
}

async fn connect_and_reset(url: &str) {
    limiter(url, DEADLINE).redis().fixed_window().reset(&key("ann")).await.unwrap();
}

/// A call is in flight in a runtime that is no longer polled, and holds its driver, a connection and perhaps the probe
/// of the circuit breaker.
#[test]
fn a_runtime_that_stands_still_delays_no_other() {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let rl = limiter(&proxy.url(), DEADLINE);
    let stalled = one_thread();
    stalled.block_on(take(&rl)).unwrap();
    proxy.freeze();
    let left = stalled.block_on(async { tokio::time::timeout(Duration::from_millis(10), take(&rl)).await });
    assert!(left.is_err());
    proxy.heal();
    assert!(one_thread().block_on(take(&rl)).unwrap() >= 2, "at the first try");
    stalled.block_on(take(&rl)).unwrap();
}

/// The runtime of the probe is not polled any more.
#[test]
fn a_probe_in_a_runtime_that_stands_still_keeps_nobody_out() {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let rl = limiter(&proxy.url(), Duration::from_millis(100));
    let stalled = one_thread();
    let of_stalled = |rl: &RateLimiter| match stalled.block_on(take(rl)) {
        Err(TrypemaError::RedisError(failure)) => failure.kind(),
        other => panic!("{other:?}"),
    };
    wait_until("the limiter to connect", || stalled.block_on(take(&rl)).is_ok()).unwrap();
    proxy.freeze();
    // Until the breaker opens, and a probe is sent after it.
    for _ in 0..200 {
        of_stalled(&rl);
        if rl.redis().stats().breaker_openings > 0 && of_stalled(&rl) == RedisFailureKind::OutcomeUnknown {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    proxy.heal();
    let other = one_thread();
    wait_until("calls of another runtime to be served", || other.block_on(take(&rl)).is_ok()).unwrap();
}

/// The connections that nothing can use any more are closed, whether their runtimes have ended or only rest.
#[test]
fn runtimes_that_are_gone_leave_no_connections() {
    let server = Server::start().unwrap();
    let rl = limiter(&server.url(), DEADLINE);
    let connections = || server.info("clients").unwrap().text("connected_clients").parse::<u64>().unwrap();
    let others = connections();
    for _ in 0..50 {
        one_thread().block_on(take(&rl)).unwrap();
    }
    wait_until("the connections to be closed", || connections() <= others + 1).unwrap();
    let resting: Vec<Runtime> = (0..5).map(|_| one_thread()).collect();
    for runtime in &resting {
        runtime.block_on(take(&rl)).unwrap();
    }
    assert!(connections() >= others + 5);
    drop(rl);
    drop(resting);
    wait_until("the connections to be closed", || connections() <= others).unwrap();
}

/// Callers outside of any runtime are served by the one in which the connection was made.
#[cfg(not(feature = "redis-smol"))]
#[test]
fn calls_outside_of_any_runtime_use_that_of_the_connection() {
    let server = Server::start().unwrap();
    let connection = wait_for(RedisConnection::connect(&server.url())).unwrap();
    let rl = RateLimiter::builder().redis(connection).redis_deadline(DEADLINE).build().unwrap();
    assert_eq!(smol::block_on(take(&rl)).map_err(|error| error.to_string()), Ok(1));
    assert_eq!(wait_for(take(&rl)).map_err(|error| error.to_string()), Ok(2));
}
