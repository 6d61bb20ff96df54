//! Checks that are spent together.

use std::sync::Arc;
use std::time::Duration;

use trypema::redis::{Check, RedisKey};
use trypema::{RateLimiter, TrypemaError};
use trypema_testkit::blocking::{key, runtime, wait_for};
use trypema_testkit::redis::Server;

use crate::limiter;
use crate::strategies::Limits;

const CALLERS: u64 = 64;
const WIDE: u64 = 1_000;

fn names() -> [RedisKey; 5] {
    ["tenant", "user", "place", "path", "login"].map(key)
}

/// Checks of five strategies; the last of them fails once `narrow` are spent.
fn checks<'l>(rl: &RateLimiter, wide: &'l Limits, narrow: &'l Limits) -> [Check<'l>; 5] {
    let (redis, [a, b, c, d, e]) = (rl.redis(), names());
    [
        redis.absolute().check_of(&a, &wide.absolute, 1),
        redis.token_bucket().check_of(&b, &wide.token_bucket, 1),
        redis.suppressed().check_of(&c, &wide.suppressed, 1),
        redis.abuse().check_of(&d, &wide.abuse, 1),
        redis.fixed_window().check_of(&e, &narrow.fixed_window, 1),
    ]
}

/// What is left of the first four.
fn left(rl: &RateLimiter, wide: &Limits) -> [u64; 4] {
    let (redis, [a, b, c, d, _]) = (rl.redis(), names());
    [
        wait_for(redis.absolute().usage(&a, &wide.absolute)).unwrap().remaining(),
        wait_for(redis.token_bucket().usage(&b, &wide.token_bucket)).unwrap().remaining(),
        wait_for(redis.suppressed().usage(&c, &wide.suppressed)).unwrap().remaining(),
        wait_for(redis.abuse().usage(&d, &wide.abuse)).unwrap().remaining(),
    ]
}

/// Wherever in the request the denial is.
#[test]
fn a_request_that_any_of_its_checks_denies_spends_nothing() {
    let server = Server::start().unwrap();
    let (_, rl) = limiter(&server.url());
    let (wide, windows) = (Limits::of(WIDE, Duration::from_secs(3_600)), rl.redis().fixed_window());
    let names = names();
    for denied in 0..names.len() {
        let cost = |position: usize| if position == denied { WIDE + 1 } else { 1 };
        let check = |(position, name)| windows.check_of(name, &wide.fixed_window, cost(position));
        let together = wait_for(rl.redis().take_all(names.iter().enumerate().map(check))).unwrap();
        assert!(!together.is_allowed);
        for (position, decision) in together.decisions.iter().enumerate() {
            assert_eq!(decision.is_allowed(), position != denied);
        }
    }
    for name in &names {
        assert_eq!(wait_for(windows.usage(name, &wide.fixed_window)).unwrap().remaining(), WIDE, "{name}");
    }
}

#[test]
fn a_request_that_its_last_check_denies_spends_nothing_however_many_ask_at_once() {
    let server = Server::start().unwrap();
    let (_, rl) = limiter(&server.url());
    let wide = Arc::new(Limits::of(WIDE, Duration::from_secs(3_600)));
    let narrow = Arc::new(Limits::of(10, Duration::from_secs(3_600)));
    let ask = |_| {
        let (rl, wide, narrow) = (Arc::clone(&rl), Arc::clone(&wide), Arc::clone(&narrow));
        runtime().spawn(async move {
            let checks = checks(&rl, &wide, &narrow);
            let together = rl.redis().take_all(checks).await.unwrap();
            assert_eq!(together.decisions.len(), 5);
            assert_eq!(together.is_allowed, together.decisions[4].is_allowed());
            together.is_allowed
        })
    };
    let asked: Vec<_> = (0..CALLERS).map(ask).collect();
    let admitted = asked.into_iter().map(|ask| wait_for(ask).unwrap());
    assert_eq!(admitted.filter(|is_allowed| *is_allowed).count(), 10);
    assert_eq!(left(&rl, &wide), [WIDE - 10; 4]);

    let denied = wait_for(rl.redis().take_all(checks(&rl, &wide, &narrow))).unwrap();
    let expected = [true, true, true, true, false];
    assert_eq!(denied.decisions.iter().map(|each| each.is_allowed()).collect::<Vec<_>>(), expected);
    assert!(denied.decisions[4].retry_after().is_some_and(|wait| !wait.is_zero()));
    assert_eq!(left(&rl, &wide), [WIDE - 10; 4]);
}

#[test]
fn no_checks_too_many_or_the_same_twice_are_an_error_and_spend_nothing() {
    let server = Server::start().unwrap();
    let (_, rl) = limiter(&server.url());
    let limits = Limits::of(10, Duration::from_secs(3_600));
    let windows = rl.redis().fixed_window();
    let of = |names: Vec<String>| {
        let check = |name: &String| windows.check_of(&key(name), &limits.fixed_window, 1);
        wait_for(rl.redis().take_all(names.iter().map(check).collect::<Vec<_>>()))
    };
    let named = |count: usize| (0..count).map(|number| format!("key {number}")).collect::<Vec<_>>();
    let cases = [
        (named(0), "invalid checks: 0 of them: need 1 to 64"),
        (named(65), "invalid checks: 65 of them: need 1 to 64"),
        (
            vec!["a".into(), "b".into(), "a".into()],
            "invalid checks: a key is asked for twice by one strategy",
        ),
    ];
    for (names, message) in cases {
        let error = of(names).unwrap_err();
        assert!(matches!(error, TrypemaError::InvalidChecks { .. }));
        assert_eq!(error.to_string(), message);
    }
    let mut control = server.control().unwrap();
    assert_eq!(control.command(&["DBSIZE"]).unwrap().integer(), Some(0));
    assert!(of(named(64)).unwrap().is_allowed);
    assert_eq!(control.command(&["DBSIZE"]).unwrap().integer(), Some(64));
    assert!(of(named(1)).unwrap().is_allowed);
}
