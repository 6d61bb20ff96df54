//! `limiter` on Redis and on the hybrid provider: a block is 429, and a store failure never is.

use std::time::Duration;

use trypema::http::{ErrorCode, ErrorResponse};
use trypema::redis::OnFailure;
use trypema::{AbuseLimit, AbuseTier, RateLimiter};
use trypema_testkit::blocking::{connect, key, wait_for};
use trypema_testkit::redis::Server;

fn limit() -> AbuseLimit {
    let tier = AbuseTier::new(Duration::from_secs(600), 2, Duration::from_secs(600)).unwrap();
    AbuseLimit::new(tier, tier)
}

fn limiter(server: &Server, on_failure: OnFailure) -> RateLimiter {
    let builder = RateLimiter::builder().redis(connect(&server.url()));
    // No test here depends on the deadline. It is long because a busy machine is slow.
    builder.on_redis_failure(on_failure).redis_deadline(Duration::from_secs(5)).build().unwrap()
}

/// An attempt on the Redis or the hybrid provider.
type Attempt = fn(&RateLimiter) -> Result<(), ErrorResponse>;

const ATTEMPTS: [Attempt; 2] = [
    |rl| wait_for(rl.redis().abuse().limiter(&key("ann"), &limit(), "login")),
    |rl| wait_for(rl.hybrid().abuse().limiter(&key("ann"), &limit(), "login")),
];

#[test]
fn a_block_is_named_and_timed() {
    for attempt in ATTEMPTS {
        let server = Server::start().unwrap();
        let rl = limiter(&server, OnFailure::Fail);
        assert_eq!(attempt(&rl), Ok(()));
        let error = attempt(&rl).unwrap_err();
        assert_eq!(error.message(), "Too many attempts for login. Try again in 600 seconds.");
        assert_eq!((error.code(), error.retry_after()), (ErrorCode::TooManyAttempts, Some(600)));
    }
}

/// The hybrid provider denies a blocked client without a Redis call.
#[test]
fn a_blocked_client_costs_the_hybrid_provider_no_call() {
    let server = Server::start().unwrap();
    let rl = limiter(&server, OnFailure::Fail);
    let [_, attempt] = ATTEMPTS;
    assert!(attempt(&rl).is_ok() && attempt(&rl).is_err());
    server.kill_9().unwrap();
    let error = attempt(&rl).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TooManyAttempts, "{error}");
}

#[test]
fn a_server_that_is_away_is_unavailable_whatever_the_policy() {
    let policies = [OnFailure::Fail, OnFailure::Deny];
    for (on_failure, attempt) in
        policies.into_iter().flat_map(|policy| ATTEMPTS.map(|attempt| (policy, attempt)))
    {
        let server = Server::start().unwrap();
        let rl = limiter(&server, on_failure);
        server.kill_9().unwrap();
        let error = attempt(&rl).unwrap_err();
        assert_eq!((error.status().as_u16(), error.retry_after()), (503, Some(1)), "{on_failure:?} {error}");
    }
}
