//! The driver task, which sends calls: it ends with its work or its runtime, and no caller is lost with it.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use trypema::clock::{Clock, SystemClock};
use trypema::redis::RedisFailureKind;
use trypema::{RateLimiter, TrypemaError};
use trypema_testkit::blocking::{connect, key, runtime, wait_for};
use trypema_testkit::redis::{FaultProxy, Server, wait_until};

use crate::batching::long_window;

const CAPACITY: u64 = 1_000_000;
/// A call that takes this long has been lost.
const DEADLINE: Duration = Duration::from_secs(20);
/// Callers must fail much earlier than the deadline.
const SOON: Duration = Duration::from_secs(10);

fn limiter(url: &str, deadline: Duration) -> Arc<RateLimiter> {
    let builder = RateLimiter::builder().redis(connect(url)).redis_deadline(deadline);
    Arc::new(builder.build().unwrap())
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn two_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn take(rl: &RateLimiter) -> Result<u64, RedisFailureKind> {
    match rl.redis().fixed_window().take(&key("ann"), &long_window(CAPACITY), 1).await {
        Ok(decision) => Ok(CAPACITY - decision.remaining()),
        Err(TrypemaError::RedisError(failure)) => Err(failure.kind()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_runtime_that_is_shut_down_is_replaced_by_the_next_callers() {
    let server = Server::start().unwrap();
    let rl = limiter(&server.url(), DEADLINE);
    for (number, start) in [one_thread, two_threads, one_thread, two_threads].into_iter().enumerate() {
        let runtime = start();
        // A connection that was opened in another runtime ends with it. New connection attempts are a short
        // time apart.
        let mut first = runtime.block_on(take(&rl));
        while first == Err(RedisFailureKind::Unavailable) {
            first = runtime.block_on(take(&rl));
        }
        assert_eq!(first, Ok(2 * number as u64 + 1), "nothing was sent into a connection that is gone");
        assert_eq!(runtime.block_on(take(&rl)), Ok(2 * number as u64 + 2));
    }
}

/// Takes one unit, and counts itself in `waiting` once it waits for the reply.
async fn noted(rl: Arc<RateLimiter>, waiting: Arc<AtomicUsize>) -> Result<u64, RedisFailureKind> {
    let mut take = pin!(take(&rl));
    let mut is_first = true;
    poll_fn(|context| {
        let poll = take.as_mut().poll(context);
        if std::mem::take(&mut is_first) {
            waiting.fetch_add(1, Ordering::AcqRel);
        }
        poll
    })
    .await
}

/// The number of callers that wait while the driver's runtime is shut down.
const OTHERS: usize = 20;

/// A runtime with a driver is shut down while callers from another runtime wait, who have a driver of their own.
#[test]
fn callers_of_other_runtimes_do_not_notice_that_one_is_shut_down() {
    let server = Server::start().unwrap();
    let rl = limiter(&server.url(), DEADLINE);
    let first = two_threads();
    first.block_on(take(&rl)).unwrap();
    wait_for(take(&rl)).unwrap();
    server.stop().unwrap();
    let waiter = Arc::clone(&rl);
    let drives = first.spawn(async move { take(&waiter).await });
    wait_until("the driver to start", || format!("{rl:?}").contains("CurrentDriver")).unwrap();
    let waiting = Arc::new(AtomicUsize::new(0));
    let others: Vec<_> =
        (0..OTHERS).map(|_| runtime().spawn(noted(Arc::clone(&rl), Arc::clone(&waiting)))).collect();
    wait_until("all to wait", || waiting.load(Ordering::Acquire) == OTHERS).unwrap();
    first.shutdown_background();
    assert!(wait_for(drives).is_err_and(|error| error.is_cancelled()));
    server.cont().unwrap();
    for other in others {
        assert!(wait_for(other).unwrap().is_ok());
    }
}

/// The driver's runtime is shut down while callers wait that another runtime polls, for example because they were moved.
#[test]
fn callers_are_told_when_their_drivers_runtime_is_shut_down() {
    let server = Server::start().unwrap();
    let rl = limiter(&server.url(), DEADLINE);
    let first = two_threads();
    first.block_on(take(&rl)).unwrap();
    server.stop().unwrap();
    let start = SystemClock.now();
    let waiting = Arc::new(AtomicUsize::new(0));
    let others: Vec<_> = (0..OTHERS)
        .map(|_| {
            let mut waits = Box::pin(noted(Arc::clone(&rl), Arc::clone(&waiting)));
            // The first poll sends the request, from the first runtime.
            first.block_on(poll_fn(|context| Poll::Ready(waits.as_mut().poll(context).is_ready())));
            runtime().spawn(waits)
        })
        .collect();
    wait_until("all to wait", || waiting.load(Ordering::Acquire) == OTHERS).unwrap();
    first.shutdown_background();
    for other in others {
        let told = wait_for(other).unwrap();
        assert!(
            matches!(told, Err(RedisFailureKind::OutcomeUnknown | RedisFailureKind::Unavailable)),
            "{told:?}"
        );
    }
    assert!(SystemClock.now() < start + SOON, "nobody waits for its deadline");
    server.cont().unwrap();
    wait_until("calls to be served", || wait_for(take(&rl)).is_ok()).unwrap();
}

#[test]
fn a_shutdown_under_load_panics_nowhere() {
    let server = Server::start().unwrap();
    let rl = limiter(&server.url(), DEADLINE);
    for _ in 0..5 {
        let runtime = two_threads();
        let callers: Vec<_> = (0..50)
            .map(|_| {
                let rl = Arc::clone(&rl);
                runtime.spawn(async move {
                    loop {
                        let _ = take(&rl).await;
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        let before = wait_for(take(&rl)).unwrap_or(0);
        wait_until("calls to be served", || wait_for(take(&rl)).is_ok_and(|used| used > before + 100))
            .unwrap();
        runtime.shutdown_background();
        for caller in callers {
            let ended = wait_for(caller);
            assert!(ended.is_err_and(|error| error.is_cancelled()), "a caller panicked");
        }
        wait_until("calls to be served", || wait_for(take(&rl)).is_ok()).unwrap();
    }
}

/// A driver task whose runtime is no longer polled but not shut down either.
#[test]
fn a_driver_that_stands_still_is_replaced() {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let rl = limiter(&proxy.url(), Duration::from_millis(200));
    wait_for(take(&rl)).unwrap();
    let stalled = one_thread();
    proxy.freeze();
    let left = stalled.block_on(async { tokio::time::timeout(Duration::from_millis(10), take(&rl)).await });
    assert!(left.is_err());
    proxy.heal();
    wait_until("calls to be served", || wait_for(take(&rl)).is_ok()).unwrap();
    drop(stalled);
    wait_for(take(&rl)).unwrap();
}

/// Replies never arrive and all callers are dropped: the driver task ends, and the connection closes with the
/// limiter.
#[test]
fn a_limiter_that_is_dropped_while_calls_are_queued_leaves_nothing_behind() {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let rl = limiter(&proxy.url(), DEADLINE);
    wait_for(take(&rl)).unwrap();
    let connections = || server.info("clients").unwrap().text("connected_clients").parse::<u64>().unwrap();
    let with_limiter = connections();
    proxy.drop_replies();
    let callers: Vec<_> = (0..100)
        .map(|_| {
            let rl = Arc::clone(&rl);
            runtime().spawn(async move { take(&rl).await })
        })
        .collect();
    wait_until("a call to be sent", || format!("{rl:?}").contains("Sent")).unwrap();
    let watched = Arc::downgrade(&rl);
    drop(rl);
    callers.iter().for_each(|caller| caller.abort());
    wait_until("the limiter to be gone", || watched.upgrade().is_none()).unwrap();
    wait_until("its connection to be closed", || connections() < with_limiter).unwrap();
}

/// With smol enabled, a call outside any Tokio runtime is sent by smol over the existing connection.
#[cfg(feature = "redis-smol")]
#[test]
fn calls_outside_of_the_runtime_that_dialled_are_served() {
    let server = Server::start().unwrap();
    let rl = limiter(&server.url(), DEADLINE);
    assert_eq!(wait_for(take(&rl)), Ok(1));
    assert_eq!(smol::block_on(take(&rl)), Ok(2));
    assert_eq!(wait_for(take(&rl)), Ok(3));
}
