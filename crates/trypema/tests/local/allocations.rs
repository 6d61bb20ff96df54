//! Calls on known keys do not allocate.

use std::sync::Arc;
use std::time::Duration;

use crate::counting_allocator::{allocations, live_bytes};
use trypema::clock::ManualClock;
use trypema::local::LocalLimiter;
use trypema::strategy::Strategy;
use trypema::{
    AbuseLimit, AbuseTier, FixedWindowLimit, RateLimit, RateLimiter, SlidingWindowLimit, TokenBucketLimits,
    TokenLimit, TrypemaError, WindowSizeSeconds,
};

const CALLS: usize = 20_000;

/// A short key, the longest inline key, the shortest that is not inline, and the longest that is stored
/// unhashed.
const KEY_LENGTHS: [usize; 4] = [1, 22, 23, 255];

struct Fixture {
    clock: Arc<ManualClock>,
    rl: RateLimiter,
}

impl Fixture {
    fn new() -> Result<Self, TrypemaError> {
        let clock = Arc::new(ManualClock::default());
        let window = WindowSizeSeconds::try_from(1)?;
        let rl = RateLimiter::builder().clock(clock.clone()).window_size_seconds(window).build()?;
        Ok(Self { clock, rl })
    }

    /// Asserts that calls do not allocate. The measured calls must include both admissions and denials.
    fn is_silent<S: Strategy>(&self, limiter: &LocalLimiter<S>, limit: &S::Limit, pause: Duration) {
        for key in KEY_LENGTHS.map(|length| "k".repeat(length)) {
            let handle = limiter.key(&key);
            let mut calls = [0; 2];
            // The first round is a warm-up: it inserts the key and grows its buckets to their final number.
            for round in 0..2 {
                calls = [0; 2];
                let before = (allocations(), live_bytes());
                for _ in 0..CALLS {
                    let taken = limiter.take(&key, limit, 1);
                    let by_handle = handle.take(limit, 1);
                    limiter.peek(&key, limit, 1);
                    handle.peek(limit, 1);
                    limiter.usage(&key, limit);
                    for decision in [taken, by_handle] {
                        calls[usize::from(S::core(&decision).is_allowed())] += 1;
                    }
                    self.clock.advance(pause);
                }
                if round == 1 {
                    let after = (allocations(), live_bytes());
                    assert_eq!(after, before, "{} {} bytes", S::NAME, key.len());
                }
            }
            assert!(calls[0] > 0, "{}: none was denied", S::NAME);
            assert!(calls[1] > 0, "{}: none was allowed", S::NAME);
        }
    }
}

/// A hundredth of the window, so that 20,000 calls span 200 windows.
const PAUSE: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn absolute_is_silent() -> Result<(), TrypemaError> {
    let fixture = Fixture::new()?;
    let absolute = fixture.rl.local().absolute();
    let limit = absolute.limit(&RateLimit::try_from(150.0)?);
    fixture.is_silent(absolute, &limit, PAUSE);
    Ok(())
}

#[test]
fn suppressed_is_silent() -> Result<(), TrypemaError> {
    let fixture = Fixture::new()?;
    let suppressed = fixture.rl.local().suppressed();
    let limit = suppressed.limit(&RateLimit::try_from(150.0)?);
    fixture.is_silent(suppressed, &limit, PAUSE);
    Ok(())
}

#[test]
fn token_buckets_are_silent() -> Result<(), TrypemaError> {
    let one = TokenLimit::new(150, SECOND)?;
    let fixture = Fixture::new()?;
    let buckets = fixture.rl.local().token_bucket();
    fixture.is_silent(buckets, &TokenBucketLimits::from(one), PAUSE);

    let limits = TokenBucketLimits::new([one, TokenLimit::new(7_000, 60 * SECOND)?])?;
    let fixture = Fixture::new()?;
    fixture.is_silent(fixture.rl.local().token_bucket(), &limits, PAUSE);

    let limits = TokenBucketLimits::new([one, TokenLimit::new(7_000, 60 * SECOND)?, one, one])?;
    let fixture = Fixture::new()?;
    fixture.is_silent(fixture.rl.local().token_bucket(), &limits, PAUSE);
    Ok(())
}

#[test]
fn sliding_windows_are_silent() -> Result<(), TrypemaError> {
    let fixture = Fixture::new()?;
    let limit = SlidingWindowLimit::new(150, SECOND)?;
    fixture.is_silent(fixture.rl.local().sliding_window(), &limit, PAUSE);
    Ok(())
}

#[test]
fn fixed_windows_are_silent() -> Result<(), TrypemaError> {
    let fixture = Fixture::new()?;
    let limit = FixedWindowLimit::new(150, SECOND)?;
    fixture.is_silent(fixture.rl.local().fixed_window(), &limit, PAUSE);
    Ok(())
}

#[test]
fn abuse_is_silent() -> Result<(), TrypemaError> {
    let fixture = Fixture::new()?;
    let limit =
        AbuseLimit::new(AbuseTier::new(SECOND, 150, SECOND)?, AbuseTier::new(10 * SECOND, 1_000, SECOND)?)
            .ignoring_attempts_while_blocked();
    fixture.is_silent(fixture.rl.local().abuse(), &limit, PAUSE);
    Ok(())
}

#[test]
fn attempts_of_a_blocked_subject_are_silent() -> Result<(), TrypemaError> {
    let fixture = Fixture::new()?;
    let tier = AbuseTier::new(SECOND, 50, SECOND)?;
    let (abuse, limit) = (fixture.rl.local().abuse(), AbuseLimit::new(tier, tier));
    let hammer = || {
        for _ in 0..CALLS {
            abuse.take("mallory", &limit, 1);
            fixture.clock.advance(PAUSE);
        }
    };
    hammer();
    let before = (allocations(), live_bytes());
    hammer();
    assert_eq!((allocations(), live_bytes()), before);
    assert!(!abuse.peek("mallory", &limit, 1).is_allowed());
    Ok(())
}

#[test]
fn the_documented_calls_are_silent() -> Result<(), TrypemaError> {
    let fixture = Fixture::new()?;
    let (local, rate) = (fixture.rl.local(), RateLimit::try_from(150.0)?);
    let call = || {
        for _ in 0..CALLS {
            local.absolute().inc("ann", &rate, 2);
            local.absolute().is_allowed("ann");
            local.suppressed().inc("ann", &rate, 2);
            local.suppressed().is_allowed("ann");
            fixture.clock.advance(PAUSE);
        }
    };
    call();
    let before = allocations();
    call();
    assert_eq!(allocations(), before);
    Ok(())
}

/// A handle hashes a very long key once. Calls through the handle do not allocate after that.
#[test]
fn handles_to_endless_keys_are_silent() -> Result<(), TrypemaError> {
    let fixture = Fixture::new()?;
    let limit = FixedWindowLimit::new(150, SECOND)?;
    let key = "k".repeat(10_000);
    let handle = fixture.rl.local().fixed_window().key(&key);
    handle.take(&limit, 1);
    let before = allocations();
    let admitted = (0..CALLS).filter(|_| handle.take(&limit, 1).is_allowed());
    assert_eq!(admitted.count(), 149);
    assert_eq!(allocations(), before);
    Ok(())
}

#[test]
fn the_system_clock_is_silent() -> Result<(), TrypemaError> {
    let rl = RateLimiter::builder().build()?;
    let limit = FixedWindowLimit::new(10, 366 * 86_400 * SECOND)?;
    let windows = rl.local().fixed_window();
    windows.take("ann", &limit, 1);
    let before = allocations();
    let admitted = (0..CALLS).filter(|_| windows.take("ann", &limit, 1).is_allowed());
    assert_eq!(admitted.count(), 9);
    assert_eq!(allocations(), before);
    Ok(())
}
