//! The state that keys share when the table is full is stricter than a state of their own, never looser, even
//! if the keys have different limits.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::local::LocalLimiter;
use trypema::strategy::Strategy;
use trypema::{
    AbsoluteLimit, AbuseLimit, AbuseTier, BlockScope, FixedWindowLimit, HardLimitFactor, RateGroupSizeMs,
    RateLimit, RateLimiter, SlidingWindowLimit, SuppressedLimit, TokenBucketLimits, TokenLimit,
    WindowSizeSeconds,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn one_key() -> (Arc<ManualClock>, RateLimiter) {
    let clock = Arc::new(ManualClock::default());
    let builder = RateLimiter::builder().clock(clock.clone()).max_keys(1);
    (clock, builder.build().unwrap())
}

fn is_taken<S: Strategy>(limiter: &LocalLimiter<S>, key: &str, limit: &S::Limit) -> bool {
    S::core(&limiter.take(key, limit, 1)).is_allowed()
}

/// Enough keys that some of them use the shared state of every shard.
const FAST_KEYS: usize = 64;

fn fast_keys() -> impl Iterator<Item = String> {
    (0..FAST_KEYS).map(|number| format!("fast {number}"))
}

/// A slow key at its limit stays denied, whatever fast keys in the same shard do.
fn a_fast_key_frees_no_slow_one<S: Strategy>(
    clock: &ManualClock,
    limiter: &LocalLimiter<S>,
    [slow, fast]: [&S::Limit; 2],
) {
    assert!(is_taken(limiter, "resident", slow));
    while is_taken(limiter, "slow", slow) {}
    // One at a time: a fast key's units also count against the slow key and would hide an error.
    for key in fast_keys() {
        clock.advance(3 * SECOND);
        limiter.take(&key, fast, 1);
        assert!(!is_taken(limiter, "slow", slow), "{} freed it at once", S::NAME);
        clock.advance(3 * SECOND);
        assert!(!is_taken(limiter, "slow", slow), "{} freed it later", S::NAME);
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
        // The blocks are short, so that only the count denies.
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

/// A sticky rate belongs to one key. Keys that share a state must not inherit another key's rate.
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

/// The shared state is no looser with many limits among its keys than with two.
#[test]
fn many_limits_are_no_looser_than_two() {
    let (clock, rl) = one_key();
    let windows = rl.local().fixed_window();
    assert!(is_taken(windows, "resident", &FixedWindowLimit::new(3, HOUR).unwrap()));
    for limit in 3..100 {
        let slow = FixedWindowLimit::new(limit, HOUR).unwrap();
        while is_taken(windows, "slow", &slow) {}
        for key in fast_keys() {
            let fast = FixedWindowLimit::new(1_000 + limit, SECOND).unwrap();
            windows.take(&key, &fast, 1);
        }
        clock.advance(3 * SECOND);
        assert!(!is_taken(windows, "slow", &slow), "freed under limit {limit}");
    }
}

/// A changed limit keeps the spent units, even for a key in the shared state.
#[test]
fn a_changed_limit_gains_nothing() {
    let (_, rl) = one_key();
    let windows = rl.local().fixed_window();
    let (before, after) = (FixedWindowLimit::new(3, HOUR).unwrap(), FixedWindowLimit::new(4, HOUR).unwrap());
    assert!(is_taken(windows, "resident", &before));
    while is_taken(windows, "late", &before) {}
    let admitted = (0..10).filter(|_| is_taken(windows, "late", &after)).count();
    assert!(admitted <= 1, "3 of 4 were spent, and {admitted} more were admitted");
}

/// A manual block holds even if the table is full.
#[test]
fn a_block_by_hand_holds_without_room() {
    let (_, rl) = one_key();
    let tier = AbuseTier::new(HOUR, 100, HOUR).unwrap();
    let (abuse, limit) = (rl.local().abuse(), AbuseLimit::new(tier, tier));
    assert!(is_taken(abuse, "resident", &limit));
    abuse.block("mallory", HOUR, BlockScope::Long);
    assert!(!is_taken(abuse, "mallory", &limit), "the block was lost");
}
