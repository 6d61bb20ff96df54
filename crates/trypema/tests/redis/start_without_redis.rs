//! A program that starts while Redis is down: the recipe of `docs/recipes.md`.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use std::num::NonZeroU32;
use std::time::Duration;

use trypema::redis::{OnFailure, RedisConnection, RedisFailureKind};
use trypema::{Decision, FixedWindowLimit, RateLimiter, TrypemaError};
use trypema_testkit::blocking::{key, runtime, wait_for};
use trypema_testkit::redis::{Server, wait_until};

/// The limit of the recipe, over a window that does not end during the test.
const LIMIT: u64 = 10;

/// The deadline of each call. It is long, so that a busy machine does not look like a failure of Redis.
const DEADLINE: Duration = Duration::from_millis(500);

/// A limiter that was created while its server was down.
struct Early {
    server: Server,
    rl: RateLimiter,
    limit: FixedWindowLimit,
}

impl Early {
    fn with(on_failure: OnFailure) -> Self {
        let server = stopped_server();
        let connection = RedisConnection::lazy(&server.url()).unwrap();
        let builder = RateLimiter::builder().redis(connection).redis_deadline(DEADLINE);
        let rl = builder.on_redis_failure(on_failure).build().unwrap();
        let year = Duration::from_secs(365 * 86_400);
        Self { server, rl, limit: FixedWindowLimit::new(LIMIT, year).unwrap() }
    }

    fn take(&self) -> Result<Decision, TrypemaError> {
        wait_for(self.rl.redis().fixed_window().take(&key("ann"), &self.limit, 1))
    }

    /// Starts the server, and takes until Redis decides.
    fn bring_up(&self) {
        self.server.restart().unwrap();
        let is_decided = || self.take().is_ok_and(|decision| !decision.is_substitute());
        wait_until("Redis to decide", is_decided).unwrap();
    }

    fn used(&self) -> u64 {
        let usage = wait_for(self.rl.redis().fixed_window().usage(&key("ann"), &self.limit)).unwrap();
        assert!(!usage.is_substitute());
        LIMIT - usage.remaining()
    }
}

/// Returns a server that has an address and does not run.
fn stopped_server() -> Server {
    let server = Server::start().unwrap();
    server.kill_9().unwrap();
    server
}

#[test]
fn connect_needs_redis_and_lazy_does_not() {
    let server = stopped_server();
    let failed = wait_for(RedisConnection::connect(&server.url())).unwrap_err();
    let TrypemaError::RedisError(failure) = &failed else { panic!("{failed}") };
    assert_eq!((failure.kind(), failure.is_retryable()), (RedisFailureKind::Unavailable, true), "{failed}");
    assert!(RedisConnection::lazy(&server.url()).is_ok());
    let invalid = RedisConnection::lazy("127.0.0.1:6379").unwrap_err();
    assert!(matches!(invalid, TrypemaError::InvalidRedisAddress { .. }), "{invalid}");
}

#[test]
fn fail_is_an_error_until_redis_is_up() {
    let early = Early::with(OnFailure::Fail);
    for _ in 0..3 {
        let error = early.take().unwrap_err();
        let TrypemaError::RedisError(failure) = &error else { panic!("{error}") };
        assert_eq!(failure.kind(), RedisFailureKind::Unavailable, "{error}");
    }
    early.bring_up();
    assert_eq!(early.used(), 1, "only the take that Redis decided");
}

#[test]
fn allow_admits_without_counting_until_redis_is_up() {
    let early = Early::with(OnFailure::Allow);
    for _ in 0..3 * LIMIT {
        let decision = early.take().unwrap();
        assert!(decision.is_allowed() && decision.is_substitute(), "{decision:?}");
    }
    early.bring_up();
    assert_eq!(early.used(), 1, "only the take that Redis decided");
}

#[test]
fn local_admits_a_share_which_redis_counts_once_it_is_up() {
    let early = Early::with(OnFailure::Local { instances: NonZeroU32::new(2).unwrap() });
    let admitted = (0..3 * LIMIT).filter(|_| early.take().unwrap().is_allowed()).count() as u64;
    assert_eq!(admitted, LIMIT / 2);
    early.bring_up();
    assert_eq!(early.used(), admitted + 1);
}

/// The background task of the hybrid provider may be started before Redis is up, too.
#[test]
fn hybrid_uses_redis_once_it_is_up() {
    let early = Early::with(OnFailure::Allow);
    let sync = runtime().spawn(early.rl.hybrid().keep_in_sync());
    let take = || wait_for(early.rl.hybrid().fixed_window().take(&key("ann"), &early.limit, 1)).unwrap();
    assert!(take().is_substitute());
    early.server.restart().unwrap();
    wait_until("Redis to decide", || !take().is_substitute()).unwrap();
    assert!(!sync.is_finished());
    sync.abort();
}
