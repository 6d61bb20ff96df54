//! Decisions while Redis is unreachable, for each policy and every strategy.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod observed;
mod settling;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use trypema::clock::{Clock, SystemClock};
use trypema::redis::{OnFailure, RedisConnection, RedisFailureKind, RedisLimiter};
use trypema::strategy::Wire;
use trypema::{Decision, RateLimiter, TrypemaError};
use trypema_testkit::blocking::{connect, key, wait_for};
use trypema_testkit::redis::{FaultProxy, Server, wait_until};

use crate::faults::limits::{CAPACITY, Claim, for_every_strategy};
use observed::Recorder;

/// The deadline of calls to a server that answers or refuses at once: a busy machine must not miss it.
const AMPLE: Duration = Duration::from_secs(20);

/// The deadline of calls to a server that does not answer.
const HASTY: Duration = Duration::from_millis(100);

/// A limiter whose server was killed, with an observer.
struct Orphan {
    server: Server,
    rl: RateLimiter,
    recorder: Arc<Recorder>,
}

impl Orphan {
    fn with(on_failure: OnFailure) -> Self {
        let server = Server::start().unwrap();
        let recorder = Arc::new(Recorder::default());
        let rl = limiter((connect(&server.url()), AMPLE), on_failure, &recorder);
        server.kill_9().unwrap();
        Self { server, rl, recorder }
    }

    /// Restarts the server and waits until the limiter uses it again.
    fn bring_back(&self) {
        self.server.restart().unwrap();
        wait_until_asked(&self.rl);
    }
}

fn limiter(
    (connection, deadline): (RedisConnection, Duration),
    on_failure: OnFailure,
    recorder: &Arc<Recorder>,
) -> RateLimiter {
    let builder = RateLimiter::builder().redis(connection).redis_deadline(deadline);
    builder.on_redis_failure(on_failure).observer(recorder.clone()).build().unwrap()
}

/// Resets the unused key `nobody` until that succeeds. A reset always needs Redis.
fn wait_until_asked(rl: &RateLimiter) {
    let is_asked = || wait_for(rl.redis().fixed_window().reset(&key("nobody"))).is_ok();
    wait_until("Redis to be asked again", is_asked).unwrap();
}

fn among(instances: u32) -> OnFailure {
    OnFailure::Local { instances: NonZeroU32::new(instances).unwrap() }
}

fn take<S: Wire>(limiter: &RedisLimiter<S>, limit: &S::Limit, cost: u64) -> Decision {
    S::core(&wait_for(limiter.take(&key("ann"), limit, cost)).unwrap())
}

fn peek<S: Wire>(limiter: &RedisLimiter<S>, limit: &S::Limit, cost: u64) -> Decision {
    S::core(&wait_for(limiter.peek(&key("ann"), limit, cost)).unwrap())
}

/// A failure never looks like a denial: every operation returns a Redis error.
#[test]
fn fail_is_an_error_of_every_verb() {
    struct Fails(Arc<Recorder>);

    impl Claim for Fails {
        fn holds_for<S: Wire>(&self, limiter: &RedisLimiter<S>, limit: &S::Limit) {
            let ann = key("ann");
            let errors = [
                wait_for(limiter.take(&ann, limit, 1)).err(),
                wait_for(limiter.take(&ann, limit, CAPACITY * 100)).err(),
                wait_for(limiter.peek(&ann, limit, 1)).err(),
                wait_for(limiter.usage(&ann, limit)).err(),
                wait_for(limiter.take_up_to(&ann, limit, 1)).err(),
                wait_for(limiter.take_with_receipt(&ann, limit, 1)).err(),
                wait_for(limiter.refund_units(&ann, limit, 1)).err(),
                wait_for(limiter.reset(&ann)).err(),
                wait_for(limiter.key(&ann).take(limit, 1)).err(),
            ];
            for error in &errors {
                let Some(TrypemaError::RedisError(failure)) = error else { panic!("{} {error:?}", S::NAME) };
                assert_ne!(failure.kind(), RedisFailureKind::Refused, "{failure}");
            }
            let told = self.0.drain();
            assert_eq!((told.failed.len(), told.decided.len()), (errors.len(), 0), "{}", S::NAME);
            assert!(told.failed.iter().all(|(strategy, _)| *strategy == S::NAME));
        }
    }

    let orphan = Orphan::with(OnFailure::Fail);
    for_every_strategy(&orphan.rl, &Fails(orphan.recorder.clone()));
}

#[test]
fn allow_admits_all_but_what_can_never_fit() {
    struct Admits;

    impl Claim for Admits {
        fn holds_for<S: Wire>(&self, limiter: &RedisLimiter<S>, limit: &S::Limit) {
            for _ in 0..3 * CAPACITY {
                let decision = take(limiter, limit, 1);
                assert!(decision.is_allowed() && decision.is_substitute(), "{} {decision:?}", S::NAME);
            }
            assert!(take(limiter, limit, CAPACITY).is_allowed(), "{}", S::NAME);
            let never = take(limiter, limit, CAPACITY * 100);
            assert!(!never.is_allowed() && never.is_substitute(), "{} {never:?}", S::NAME);
            assert!(never.is_never() && never.retry_after().is_none(), "{} {never:?}", S::NAME);

            let peeked = peek(limiter, limit, 1);
            assert!(peeked.is_allowed() && peeked.is_substitute(), "{} {peeked:?}", S::NAME);
            let reserved = wait_for(limiter.take_with_receipt(&key("ann"), limit, 1)).unwrap();
            assert!(S::core(&reserved.decision).is_allowed() && reserved.receipt.is_none());
            assert_eq!(wait_for(limiter.take_up_to(&key("ann"), limit, 3)).unwrap().units, 3);
        }
    }

    for_every_strategy(&Orphan::with(OnFailure::Allow).rl, &Admits);
}

#[test]
fn deny_denies_all_and_says_when_to_try_again() {
    struct Denies;

    impl Claim for Denies {
        fn holds_for<S: Wire>(&self, limiter: &RedisLimiter<S>, limit: &S::Limit) {
            for cost in [1, CAPACITY] {
                for decision in [take(limiter, limit, cost), peek(limiter, limit, cost)] {
                    assert!(!decision.is_allowed() && decision.is_substitute(), "{} {decision:?}", S::NAME);
                    // The denial is not based on a count, so the wait is short: Redis may be back soon.
                    assert_eq!(decision.retry_after(), Some(Duration::from_secs(1)), "{}", S::NAME);
                }
            }
            let never = take(limiter, limit, CAPACITY * 100);
            assert!(never.is_never() && never.is_substitute(), "{} {never:?}", S::NAME);
            assert_eq!(wait_for(limiter.take_up_to(&key("ann"), limit, 3)).unwrap().units, 0);
            assert!(wait_for(limiter.take_with_receipt(&key("ann"), limit, 1)).unwrap().receipt.is_none());
        }
    }

    for_every_strategy(&Orphan::with(OnFailure::Deny).rl, &Denies);
}

/// A `take_up_to` that exceeds the limit grants the rest of it, with or without Redis.
#[test]
fn taking_up_to_more_than_fits() {
    struct Gets(u64);

    impl Claim for Gets {
        fn holds_for<S: Wire>(&self, limiter: &RedisLimiter<S>, limit: &S::Limit) {
            let granted = wait_for(limiter.take_up_to(&key("ann"), limit, CAPACITY * 100)).unwrap();
            // Suppressed may grant up to twice its limit.
            let most = if S::NAME == "suppressed" { 2 * self.0 } else { self.0 };
            assert!((self.0..=most).contains(&granted.units), "{} {granted:?}", S::NAME);
        }
    }

    for_every_strategy(&Orphan::with(OnFailure::Allow).rl, &Gets(CAPACITY));
    for_every_strategy(&Orphan::with(among(4)).rl, &Gets(CAPACITY / 4));
}

/// While the circuit breaker is open, calls fail immediately and Redis is probed occasionally.
fn fails_at_once(fault: fn(&FaultProxy)) {
    let server = Server::start().unwrap();
    let proxy = FaultProxy::start(server.addr()).unwrap();
    let rl = limiter((connect(&proxy.url()), HASTY), OnFailure::Fail, &Arc::default());
    let limit = trypema::FixedWindowLimit::new(CAPACITY, Duration::from_secs(3_600)).unwrap();
    let call = || wait_for(rl.redis().fixed_window().take(&key("ann"), &limit, 1)).unwrap_err();
    fault(&proxy);
    let dialled = proxy.accepted();
    let start = SystemClock.now();
    (0..1_000).for_each(|_| drop(call()));
    let millis = (SystemClock.now().as_micros() - start.as_micros()) / 1_000;
    // Five calls wait for their deadlines. After that, probes are at least 100 ms apart. If every call waited, they
    // would take 100 s.
    assert!(millis < 30_000, "1,000 calls took {millis} ms");
    let dials = proxy.accepted() - dialled;
    assert!(dials <= millis / 100 + 2, "{dials} dials in {millis} ms");
    proxy.heal();
    wait_until_asked(&rl);
}

#[test]
fn calls_fail_at_once_while_connections_are_refused() {
    fails_at_once(FaultProxy::refuse);
}

#[test]
fn calls_fail_at_once_while_the_network_is_silent() {
    fails_at_once(FaultProxy::freeze);
}

#[test]
fn calls_fail_at_once_while_every_connection_is_cut_and_dials_hang() {
    fails_at_once(|proxy| {
        proxy.cut();
        proxy.freeze();
    });
}
