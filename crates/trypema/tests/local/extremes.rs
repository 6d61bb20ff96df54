//! No public call panics, for any arguments and any clock.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use trypema::clock::{ManualClock, Timestamp};
use trypema::local::LocalLimiter;
use trypema::strategy::Strategy;
use trypema::{
    AbsoluteLimit, AbuseLimit, AbuseTier, BlockScope, ConcurrencyLimit, Decision, FixedWindowLimit,
    HardLimitFactor, LocalReceipt, RateGroupSizeMs, RateLimit, RateLimiter, SlidingWindowLimit,
    SuppressedLimit, TokenBucketLimits, TokenLimit, WhenFull, WindowSizeSeconds,
};

const ROUNDS: u64 = 300;
const STEPS: u64 = 300;
const LONGEST: Duration = Duration::from_secs(366 * 86_400);
const EXACT: u64 = (1 << 53) - 1;

const COSTS: [u64; 10] =
    [0, 1, 2, 1 << 32, EXACT - 1, EXACT, EXACT + 1, EXACT + 2, i64::MAX as u64, u64::MAX];

const DURATIONS: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_micros(1),
    Duration::from_secs(1),
    LONGEST,
    Duration::MAX,
];

/// A deterministic pseudo-random generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[(self.roll() % from.len() as u64) as usize]
    }
}

/// Sets the clock to an extreme value, or moves it slightly.
fn move_clock(clock: &ManualClock, dice: &mut Dice) {
    let times = [0, 1, 1_600_000_000_000_000, EXACT - 1_000_000, EXACT - 1, EXACT];
    match dice.roll() % 3 {
        0 => clock.set(Timestamp::from_micros(*dice.pick(&times))),
        1 => clock.advance(Duration::from_micros(dice.roll() % 3)),
        _ => clock.advance(*dice.pick(&DURATIONS)),
    }
}

struct Extremes<'a, S: Strategy> {
    limiter: &'a LocalLimiter<S>,
    limits: &'a [S::Limit],
    keys: &'a [String],
    receipts: Vec<LocalReceipt>,
}

impl<S: Strategy> Extremes<'_, S> {
    /// Calls a random operation with random arguments, and reads every field of its result.
    fn step(&mut self, dice: &mut Dice) {
        let limiter = self.limiter;
        let (key, limit) = (dice.pick(self.keys).as_str(), dice.pick(self.limits));
        let (cost, duration) = (*dice.pick(&COSTS), *dice.pick(&DURATIONS));
        match dice.roll() % 14 {
            0..=2 => read(&S::core(&limiter.take(key, limit, cost))),
            3 => read(&S::core(&limiter.peek(key, limit, cost))),
            4 => read(&S::core(&limiter.usage(key, limit))),
            5 => {
                let granted = limiter.take_up_to(key, limit, cost);
                assert!(granted.units <= cost);
                read(&S::core(&granted.decision));
            }
            6 => {
                let reserved = limiter.take_with_receipt_for(key, limit, cost, duration);
                read(&S::core(&reserved.decision));
                self.receipts.extend(reserved.receipt);
            }
            7 if !self.receipts.is_empty() => {
                let receipt = *dice.pick(&self.receipts);
                assert!(limiter.refund(key, limit, &receipt) <= receipt.units());
                let _ = receipt.recorded_at();
            }
            8 => assert!(limiter.refund_units(key, limit, cost) <= cost),
            9 => {
                let _ = limiter.reset(key);
            }
            10 => limiter.forget_stale(duration),
            11 => assert!(limiter.live_keys().count() <= limiter.len()),
            12 => {
                let handle = limiter.key(key);
                read(&S::core(&handle.take(limit, cost)));
                read(&S::core(&handle.peek(limit, cost)));
                assert_eq!(handle.name(), key);
            }
            _ => {
                let wait = pin!(limiter.wait(key, limit, cost, duration));
                let _ = wait.poll(&mut Context::from_waker(Waker::noop()));
            }
        }
    }
}

/// Reads every field of a decision and checks that they are consistent.
fn read(decision: &Decision) {
    assert!(decision.remaining() <= decision.limit(), "{decision:?}");
    let _ = decision.reset_after();
    let wait = decision.retry_after();
    if decision.is_allowed() {
        assert_eq!(wait, Some(Duration::ZERO), "{decision:?}");
    } else {
        assert_ne!(wait, Some(Duration::ZERO), "{decision:?}");
        assert_eq!(wait.is_none(), decision.is_never(), "{decision:?}");
    }
}

/// Calls random operations on one strategy. `more` adds those that only this strategy has.
fn survives<S: Strategy>(
    choose: impl Fn(&RateLimiter) -> &LocalLimiter<S>,
    limits: &[S::Limit],
    more: impl Fn(&RateLimiter, &mut Dice, &str),
) {
    let mut keys = ["", "\0", "a", "ключ", "\u{10FFFF}\0\n"].map(String::from).to_vec();
    keys.extend([22, 23, 255, 256, 10_000].map(|length| "k".repeat(length)));
    for round in 0..ROUNDS {
        let mut dice = Dice(round << 32);
        let clock = Arc::new(ManualClock::default());
        let when_full = *dice.pick(&[WhenFull::Share, WhenFull::Evict]);
        let max_keys = *dice.pick(&[1, 3, 100, usize::MAX]);
        let builder = RateLimiter::builder().clock(clock.clone());
        let rl = builder.max_keys(max_keys).when_full(when_full).build().unwrap();
        let mut extremes = Extremes { limiter: choose(&rl), limits, keys: &keys, receipts: Vec::new() };
        for _ in 0..STEPS {
            extremes.step(&mut dice);
            more(&rl, &mut dice, &keys[round as usize % keys.len()]);
            if dice.roll().is_multiple_of(4) {
                move_clock(&clock, &mut dice);
            }
        }
    }
}

fn nothing_more(_: &RateLimiter, _: &mut Dice, _: &str) {}

const WINDOWS: [Duration; 4] =
    [Duration::from_nanos(1), Duration::from_micros(3), Duration::from_secs(60), LONGEST];

#[test]
fn fixed_windows() {
    let each = |limit| WINDOWS.map(|window| FixedWindowLimit::new(limit, window).unwrap());
    let limits = [each(1), each(EXACT)].concat();
    survives(|rl| rl.local().fixed_window(), &limits, nothing_more);
}

#[test]
fn concurrency() {
    let hour = Duration::from_secs(3_600);
    let holds = WINDOWS.map(|window| window.min(hour));
    let each = |limit| holds.map(|hold| ConcurrencyLimit::new(limit, hold).unwrap());
    let limits = [each(1), each(EXACT)].concat();
    survives(|rl| rl.local().concurrency(), &limits, nothing_more);
}

#[test]
fn sliding_windows() {
    let each = |limit| WINDOWS.map(|window| SlidingWindowLimit::new(limit, window).unwrap());
    let limits = [each(1), each(u64::from(u32::MAX))].concat();
    survives(|rl| rl.local().sliding_window(), &limits, nothing_more);
}

#[test]
fn token_buckets() {
    let limit = |capacity, micros| TokenLimit::new(capacity, Duration::from_micros(micros)).unwrap();
    let year = LONGEST.as_micros() as u64;
    let extremes = [limit(1, 1), limit(1, year), limit(year, year), limit(EXACT, 1), limit(7, 1_000_000)];
    let limits: Vec<TokenBucketLimits> = extremes
        .map(TokenBucketLimits::from)
        .into_iter()
        .chain([TokenBucketLimits::new(extremes.into_iter().take(TokenLimit::MAX_PER_BUCKET)).unwrap()])
        .collect();
    survives(|rl| rl.local().token_bucket(), &limits, nothing_more);
}

fn rates() -> Vec<(RateLimit, WindowSizeSeconds, RateGroupSizeMs)> {
    let mut all = Vec::new();
    for rate in [f64::MIN_POSITIVE, 0.5, 100_000_000.0] {
        for (seconds, group_ms) in [(1, 1), (60, 10), (1, 3_600_000), (LONGEST.as_secs(), 1)] {
            all.push((
                RateLimit::try_from(rate).unwrap(),
                WindowSizeSeconds::try_from(seconds).unwrap(),
                RateGroupSizeMs::try_from(group_ms).unwrap(),
            ));
        }
    }
    all
}

#[test]
fn absolute() {
    let limit = |(rate, window, group)| AbsoluteLimit::new(rate, window, group);
    let limits: Vec<AbsoluteLimit> = rates().into_iter().map(limit).collect();
    survives(
        |rl| rl.local().absolute(),
        &limits,
        |rl, dice, key| {
            let rate = dice.pick(&rates()).0;
            let _ = rl.local().absolute().inc(key, &rate, *dice.pick(&COSTS)).retry_after();
            let _ = rl.local().absolute().is_allowed(key);
            let _ = rl.local().absolute().set_rate_limit(key, &rate);
        },
    );
}

#[test]
fn suppressed() {
    let factors = [1.0, 2.0, 1_000_000.0].map(|factor| HardLimitFactor::try_from(factor).unwrap());
    let limits: Vec<SuppressedLimit> = rates()
        .into_iter()
        .flat_map(|(rate, window, group)| {
            factors.map(|factor| SuppressedLimit::new(rate, window, group, factor))
        })
        .collect();
    survives(
        |rl| rl.local().suppressed(),
        &limits,
        |rl, dice, key| {
            let rate = dice.pick(&rates()).0;
            let _ = rl.local().suppressed().inc(key, &rate, *dice.pick(&COSTS)).retry_after();
            let _ = rl.local().suppressed().is_allowed(key);
            let _ = rl.local().suppressed().set_rate_limit(key, &rate);
        },
    );
}

fn attempts() -> Vec<AbuseLimit> {
    let mut limits = Vec::new();
    for window in WINDOWS {
        for threshold in [1, 2, 10_000] {
            let temp = AbuseTier::new(window, threshold, LONGEST).unwrap();
            let long = AbuseTier::new(LONGEST, 10_000, window).unwrap();
            limits.push(AbuseLimit::new(temp, long));
            limits.push(AbuseLimit::new(long, temp).ignoring_attempts_while_blocked());
        }
    }
    limits
}

#[test]
fn abuse() {
    let limits = attempts();
    survives(
        |rl| rl.local().abuse(),
        &limits,
        |rl, dice, key| {
            let abuse = rl.local().abuse();
            let limit = dice.pick(&limits);
            match dice.roll() % 8 {
                0 => abuse.block(key, LONGEST, BlockScope::Temp),
                1 => {
                    let _ = abuse.unblock(key);
                }
                _ => {
                    let is_allowed = abuse.peek(key, limit, 1).is_allowed();
                    assert_eq!(abuse.check(key, limit).is_allowed(), is_allowed);
                }
            }
        },
    );
}

#[test]
fn blocks_of_any_length() {
    let clock = Arc::new(ManualClock::default());
    let rl = RateLimiter::builder().clock(clock.clone()).build().unwrap();
    let limit = attempts()[0];
    for now in [0, 1_600_000_000_000_000, EXACT] {
        clock.set(Timestamp::from_micros(now));
        for duration in DURATIONS {
            for scope in [BlockScope::Temp, BlockScope::Long] {
                rl.local().abuse().block("mallory", duration, scope);
                let decision = rl.local().abuse().peek("mallory", &limit, 0);
                let _ = decision.block_ends_after();
            }
        }
    }
    assert!(!rl.local().abuse().peek("mallory", &limit, 0).is_allowed());
}

/// Units are reserved for later under a limit with many small tokens, then read under a limit with a single
/// large token.
#[test]
fn reserved_tokens_under_another_limit() {
    let clock = Arc::new(ManualClock::default());
    let rl = RateLimiter::builder().clock(clock).build().unwrap();
    let year = LONGEST.as_micros() as u64;
    let small = TokenBucketLimits::from(TokenLimit::new(year, LONGEST).unwrap());
    let large = TokenBucketLimits::from(TokenLimit::new(1, LONGEST).unwrap());
    let buckets = rl.local().token_bucket();
    let reserved = buckets.take_with_receipt_for("ann", &small, year, LONGEST);
    assert!(reserved.receipt.is_some());
    assert_eq!(buckets.refund_units("ann", &large, 0), 0);
    assert_eq!(buckets.live_keys().count(), 1);
}
