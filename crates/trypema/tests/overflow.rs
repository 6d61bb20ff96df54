//! The state that keys without room share is stricter for them than one of their own, never looser: also
//! when the keys that share it have different limits.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::local::Limiter;
use trypema::strategy::Strategy;
use trypema::{
    AbsoluteLimit, AbuseLimit, AbuseTier, FixedWindowLimit, HardLimitFactor, RateGroupSizeMs, RateLimit,
    RateLimiter, SlidingWindowLimit, SuppressedLimit, TokenBucketLimits, TokenLimit, WindowSizeSeconds,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn one_key() -> (Arc<ManualClock>, RateLimiter) {
    let clock = Arc::new(ManualClock::default());
    let builder = RateLimiter::builder().clock(clock.clone()).max_keys(1);
    (clock, builder.build().unwrap())
}

fn is_taken<S: Strategy>(limiter: &Limiter<S>, key: &str, limit: &S::Limit) -> bool {
    S::core(&limiter.take(key, limit, 1)).is_allowed()
}

/// So many that some of them share the state of every shard.
const FAST_KEYS: usize = 64;

fn fast_keys() -> impl Iterator<Item = String> {
    (0..FAST_KEYS).map(|number| format!("fast {number}"))
}

/// A slow key at its limit stays there, whatever fast keys do beside it.
fn a_fast_key_frees_no_slow_one<S: Strategy>(
    clock: &ManualClock,
    limiter: &Limiter<S>,
    [slow, fast]: [&S::Limit; 2],
) {
    assert!(is_taken(limiter, "resident", slow));
    while is_taken(limiter, "slow", slow) {}
    for _ in 0..10 {
        fast_keys().for_each(|key| drop(limiter.take(&key, fast, 1)));
        // What the fast keys took no longer counts for them; what the slow one took does for it.
        clock.advance(3 * SECOND);
        assert!(!is_taken(limiter, "slow", slow), "{} freed it", S::NAME);
    }
    assert_eq!(limiter.len(), 1, "only the resident has a state of its own");
}

#[test]
fn fixed_windows_of_two_lengths() {
    let (clock, rl) = one_key();
    let slow = FixedWindowLimit::new(3, HOUR).unwrap();
    let fast = FixedWindowLimit::new(1_000, SECOND).unwrap();
    a_fast_key_frees_no_slow_one(&clock, rl.local().fixed_window(), [&slow, &fast]);
}

#[test]
fn sliding_windows_of_two_lengths() {
    let (clock, rl) = one_key();
    let slow = SlidingWindowLimit::new(3, HOUR).unwrap();
    let fast = SlidingWindowLimit::new(1_000, SECOND).unwrap();
    a_fast_key_frees_no_slow_one(&clock, rl.local().sliding_window(), [&slow, &fast]);
}

#[test]
fn token_buckets_of_two_speeds() {
    let (clock, rl) = one_key();
    let slow = TokenBucketLimits::from(TokenLimit::new(3, HOUR).unwrap());
    let fast = TokenBucketLimits::from(TokenLimit::new(1_000, SECOND).unwrap());
    a_fast_key_frees_no_slow_one(&clock, rl.local().token_bucket(), [&slow, &fast]);
}

#[test]
fn attempts_over_two_lengths() {
    let (clock, rl) = one_key();
    let tiers = |window, threshold| {
        // Blocks are short, so that only the count denies.
        let tier = AbuseTier::new(window, threshold, Duration::from_millis(1)).unwrap();
        AbuseLimit::new(tier, tier).ignoring_attempts_while_blocked()
    };
    let (slow, fast) = (tiers(HOUR, 4), tiers(SECOND, 1_000));
    a_fast_key_frees_no_slow_one(&clock, rl.local().abuse(), [&slow, &fast]);
}

fn window(per_second: f64, seconds: u64) -> (RateLimit, WindowSizeSeconds, RateGroupSizeMs) {
    (
        RateLimit::try_from(per_second).unwrap(),
        WindowSizeSeconds::try_from(seconds).unwrap(),
        RateGroupSizeMs::try_from(10).unwrap(),
    )
}

#[test]
fn absolute_windows_of_two_lengths() {
    let (clock, rl) = one_key();
    let limit = |(rate, window, group)| AbsoluteLimit::new(rate, window, group);
    let (slow, fast) = (limit(window(0.001, 3_600)), limit(window(1_000.0, 1)));
    a_fast_key_frees_no_slow_one(&clock, rl.local().absolute(), [&slow, &fast]);
}

#[test]
fn suppressed_windows_of_two_lengths() {
    let (clock, rl) = one_key();
    let factor = HardLimitFactor::try_from(1.0).unwrap();
    let limit = |(rate, window, group)| SuppressedLimit::new(rate, window, group, factor);
    let (slow, fast) = (limit(window(0.001, 3_600)), limit(window(1_000.0, 1)));
    a_fast_key_frees_no_slow_one(&clock, rl.local().suppressed(), [&slow, &fast]);
}

/// A sticky rate belongs to one key: those that share a state must not inherit a neighbour's.
#[test]
fn a_sticky_rate_does_not_spread() {
    let (_, rl) = one_key();
    let (slow, fast) = (
        RateLimit::try_from(0.05).unwrap(), // 3 a minute
        RateLimit::try_from(100.0).unwrap(),
    );
    let absolute = rl.local().absolute();
    assert!(absolute.inc("resident", &fast, 1).is_allowed());
    fast_keys().for_each(|key| assert!(absolute.inc(&key, &fast, 1).is_allowed()));
    let admitted = || (0..100).filter(|_| absolute.inc("slow", &slow, 1).is_allowed()).count();
    let without_room = admitted();
    assert!(without_room <= 3, "{without_room} of 3 admitted");
    assert!(absolute.reset("resident"));
    assert!(without_room + admitted() <= 3, "room appeared, and with it capacity");
}

#[test]
fn a_sticky_rate_of_the_suppressed_strategy_does_not_spread() {
    let (_, rl) = one_key();
    let (slow, fast) = (
        RateLimit::try_from(0.05).unwrap(), // 3 a minute, at most 6
        RateLimit::try_from(100.0).unwrap(),
    );
    let suppressed = rl.local().suppressed();
    assert!(suppressed.inc("resident", &fast, 1).is_allowed());
    fast_keys().for_each(|key| assert!(suppressed.inc(&key, &fast, 1).is_allowed()));
    let admitted = (0..100).filter(|_| suppressed.inc("slow", &slow, 1).is_allowed());
    let admitted = admitted.count();
    assert!(admitted <= 6, "{admitted} of 6 admitted");
}
