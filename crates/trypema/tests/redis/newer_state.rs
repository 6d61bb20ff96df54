//! A state in a newer format is rejected by every strategy and operation, and stays unchanged.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use std::time::Duration;

use trypema::redis::{
    InstanceLiveness, LeaseArgs, OnFailure, RedisConnection, RedisFailureKind, RedisLimiter, RedisReceipt,
};
use trypema::strategy::{Abuse, Leasable, LeaseParams, Wire};
use trypema::{BlockScope, Check, Limit, RateLimit, RateLimiter, TrypemaError};
use trypema_testkit::blocking::{connect, key, wait_for};
use trypema_testkit::redis::{Control, Server};

use crate::strategies::{Limits, Visit, each};

const MESSAGE: &str = "redis refused the call: state was written by a newer version of trypema";

const WINDOW: Duration = Duration::from_secs(3_600);
const DEADLINE: Duration = Duration::from_secs(20);

fn limiter(connection: RedisConnection, on_failure: OnFailure) -> RateLimiter {
    let builder = RateLimiter::builder().redis(connection).redis_deadline(DEADLINE);
    builder.on_redis_failure(on_failure).build().unwrap()
}

/// A key with a state in format 2, as a newer version might write it.
struct Future {
    control: Control,
    name: Vec<u8>,
    state: Vec<u8>,
}

impl Future {
    /// Replaces the state of the only key with one in format 2 of the same length.
    fn replace_only_key(mut control: Control) -> Self {
        let names = control.command(&["KEYS", "*"]).unwrap();
        let [name] = names.items() else { panic!("{names:?} is not one key") };
        let name = name.bytes().to_vec();
        let mut state = control.command(&[b"GET", name.as_slice()]).unwrap().bytes().to_vec();
        assert!(state[0] < 128, "letters have no high bit");
        (state[0], state[1]) = (state[0] + 128, 2);
        control.command(&[b"SET", name.as_slice(), &state, b"PX", b"3600000"]).unwrap();
        Self { control, name, state }
    }

    /// Asserts that no key was added, and that the value and the expiry are unchanged.
    fn assert_untouched(&mut self) {
        let names = self.control.command(&["KEYS", "*"]).unwrap();
        assert_eq!(names.items().len(), 1, "{names:?}");
        assert_eq!(self.control.command(&[b"GET", self.name.as_slice()]).unwrap().bytes(), self.state);
        let ttl = self.control.command(&[b"PTTL", self.name.as_slice()]).unwrap().integer();
        assert!(ttl.is_some_and(|ttl| (3_000_000..=3_600_000).contains(&ttl)), "{ttl:?}");
    }
}

/// Reserves one unit, so that a state exists. Returns the receipt.
fn take_once<S: Wire>(limiter: &RedisLimiter<S>, limit: &S::Limit) -> RedisReceipt {
    wait_for(limiter.take_with_receipt(&key("ann"), limit, 1)).unwrap().receipt.unwrap()
}

/// The errors of every operation that all strategies have, for the key `ann`.
fn errors_of_every_verb<S: Wire>(
    limiter: &RedisLimiter<S>,
    limit: &S::Limit,
    receipt: &RedisReceipt,
) -> Vec<TrypemaError> {
    let ann = key("ann");
    vec![
        wait_for(limiter.take(&ann, limit, 1)).err().unwrap(),
        wait_for(limiter.peek(&ann, limit, 1)).err().unwrap(),
        wait_for(limiter.usage(&ann, limit)).err().unwrap(),
        wait_for(limiter.take_up_to(&ann, limit, 1)).err().unwrap(),
        wait_for(limiter.take_with_receipt(&ann, limit, 1)).err().unwrap(),
        wait_for(limiter.take_with_receipt_for(&ann, limit, 1, Duration::from_secs(1))).err().unwrap(),
        wait_for(limiter.refund(&ann, limit, receipt)).err().unwrap(),
        wait_for(limiter.refund_units(&ann, limit, 1)).err().unwrap(),
        wait_for(limiter.reset(&ann)).err().unwrap(),
    ]
}

fn assert_refused(errors: &[TrypemaError]) {
    for error in errors {
        let TrypemaError::RedisError(failure) = error else { panic!("{error}") };
        assert_eq!(failure.kind(), RedisFailureKind::Refused, "{failure}");
        assert!(failure.to_string().contains(MESSAGE), "{failure}");
    }
}

/// Replaces each strategy's state with one in a newer format, and calls every operation.
struct EveryVerb<'a> {
    server: &'a Server,
}

impl Visit for EveryVerb<'_> {
    fn visit<S: Leasable + Sync>(&mut self, limiter: &RedisLimiter<S>, limit: &S::Limit) {
        let mut control = self.server.control().unwrap();
        control.command(&["FLUSHDB"]).unwrap();
        let receipt = take_once(limiter, limit);
        let mut future = Future::replace_only_key(control);
        assert_refused(&errors_of_every_verb(limiter, limit, &receipt));
        future.assert_untouched();
    }
}

#[test]
fn every_verb_of_every_strategy_refuses_a_newer_state() {
    let server = Server::start().unwrap();
    let rl = limiter(connect(&server.url()), OnFailure::Fail);
    each(&rl, &Limits::of(8, WINDOW), &mut EveryVerb { server: &server });
}

/// Replaces each strategy's state with one in a newer format, and asks for a lease.
struct Lease<'a> {
    server: &'a Server,
}

impl Visit for Lease<'_> {
    fn visit<S: Leasable + Sync>(&mut self, limiter: &RedisLimiter<S>, limit: &S::Limit) {
        let mut control = self.server.control().unwrap();
        control.command(&["FLUSHDB"]).unwrap();
        take_once(limiter, limit);
        let mut future = Future::replace_only_key(control);
        let ask = LeaseParams { need: 1, want: 2, length_us: 1_000_000, ..LeaseParams::default() };
        let instance = InstanceLiveness { id: 7, live_for_us: 1_000_000 };
        let failure =
            wait_for(limiter.lease(&key("ann"), limit, LeaseArgs { params: ask, instance })).err().unwrap();
        assert_refused(&[failure.into()]);
        future.assert_untouched();
    }
}

#[test]
fn no_units_are_leased_from_a_newer_state() {
    let server = Server::start().unwrap();
    let rl = limiter(connect(&server.url()), OnFailure::Fail);
    each(&rl, &Limits::of(8, WINDOW), &mut Lease { server: &server });
}

#[test]
fn verbs_that_one_strategy_has_refuse_a_newer_state() {
    let server = Server::start().unwrap();
    let rl = limiter(connect(&server.url()), OnFailure::Fail);
    let (limits, ann, redis) = (Limits::of(8, WINDOW), key("ann"), rl.redis());

    let abuse: &RedisLimiter<Abuse> = redis.abuse();
    take_once(abuse, &limits.abuse);
    let mut future = Future::replace_only_key(server.control().unwrap());
    let errors = [
        wait_for(abuse.block(&ann, Duration::from_secs(60), BlockScope::Long)).err().unwrap(),
        wait_for(abuse.unblock(&ann)).err().unwrap(),
        wait_for(abuse.check(&ann, &limits.abuse)).err().unwrap(),
    ];
    assert_refused(&errors);
    future.assert_untouched();

    server.control().unwrap().command(&["FLUSHDB"]).unwrap();
    let rate = RateLimit::try_from(5.0).unwrap();
    wait_for(redis.absolute().inc(&ann, &rate, 1)).unwrap();
    let mut future = Future::replace_only_key(server.control().unwrap());
    let errors = [
        wait_for(redis.absolute().inc(&ann, &rate, 1)).err().unwrap(),
        wait_for(redis.absolute().is_allowed(&ann)).err().unwrap(),
        wait_for(redis.absolute().set_rate_limit(&ann, &rate)).err().unwrap(),
    ];
    assert_refused(&errors);
    future.assert_untouched();
}

#[test]
fn checks_beside_a_newer_state_spend_nothing() {
    let server = Server::start().unwrap();
    let rl = limiter(connect(&server.url()), OnFailure::Fail);
    let limits = Limits::of(8, WINDOW);
    take_once(rl.redis().fixed_window(), &limits.fixed_window);
    let mut future = Future::replace_only_key(server.control().unwrap());
    let [tokens, windows] = [Limit::from(limits.token_bucket), Limit::from(limits.fixed_window)];
    let checks = [Check::new("bob", &tokens, 1), Check::new("ann", &windows, 1)];
    let error = wait_for(rl.redis().take_all(&checks)).err().unwrap();
    assert_refused(&[error]);
    // No state of bob was written either.
    future.assert_untouched();
}

#[test]
fn the_failure_policy_decides_in_place_of_a_newer_state() {
    let server = Server::start().unwrap();
    let limit = Limits::of(8, WINDOW).fixed_window;
    let strict = limiter(connect(&server.url()), OnFailure::Fail);
    take_once(strict.redis().fixed_window(), &limit);
    let mut future = Future::replace_only_key(server.control().unwrap());
    for (policy, is_allowed) in [(OnFailure::Allow, true), (OnFailure::Deny, false)] {
        let rl = limiter(connect(&server.url()), policy);
        let decision = wait_for(rl.redis().fixed_window().take(&key("ann"), &limit, 1)).unwrap();
        assert_eq!((decision.is_allowed(), decision.is_substitute()), (is_allowed, true));
    }
    future.assert_untouched();
}
