//! Many threads on one key at one instant: the outcome equals that of some serial order.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::task::Waker;
use std::time::Duration;

use trypema::clock::{Clock, Timestamp};
use trypema::local::LocalLimiter;
use trypema::strategy::Strategy;
use trypema::{
    AbuseLimit, AbuseTier, ConcurrencyLimit, FixedWindowLimit, HardLimitFactor, RateGroupSizeMs, RateLimit,
    RateLimiter, SlidingWindowLimit, SuppressedLimit, TokenBucketLimits, TokenLimit, WindowSizeSeconds,
};

const THREADS: usize = 8;
const REPETITIONS: usize = 10_000;

/// The capacity at one instant of each of the limits below.
const CAPACITY: u64 = 20;

/// Long enough that the window does not end during a test, even on the system clock.
const WINDOW: Duration = Duration::from_secs(366 * 86_400);

/// A clock that stands still and has no lock, so that threads contend only in the limiter.
#[derive(Debug)]
struct StillClock;

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_600_000_000_000_000)
    }

    fn wake_at(&self, _: Timestamp, _: &Waker) {}
}

fn at_one_instant() -> RateLimiter {
    let clock = Arc::new(StillClock);
    RateLimiter::builder().clock(clock).build().unwrap()
}

/// Runs `work` for every thread and repetition. The threads are reused and start each repetition together.
fn hammer(work: impl Fn(usize, usize) + Sync) {
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                for repetition in 0..REPETITIONS {
                    barrier.wait();
                    work(thread, repetition);
                }
            });
        }
    });
}

fn counters() -> Vec<AtomicU64> {
    (0..REPETITIONS).map(|_| AtomicU64::new(0)).collect()
}

fn is_taken<S: Strategy>(limiter: &LocalLimiter<S>, key: &str, limit: &S::Limit, cost: u64) -> bool {
    S::core(&limiter.take(key, limit, cost)).is_allowed()
}

/// Takes single units, more than the capacity: exactly `expected` are admitted in each repetition.
fn admits_exactly<S: Strategy>(limiter: &LocalLimiter<S>, limit: &S::Limit, expected: u64) {
    const TAKES_PER_THREAD: usize = 4;
    const { assert!(THREADS * TAKES_PER_THREAD > CAPACITY as usize) };
    let admitted = counters();
    hammer(|_, repetition| {
        let key = repetition.to_string();
        let taken = (0..TAKES_PER_THREAD).filter(|_| is_taken(limiter, &key, limit, 1));
        admitted[repetition].fetch_add(taken.count() as u64, Ordering::Relaxed);
    });
    for (repetition, admitted) in admitted.iter().enumerate() {
        let admitted = admitted.load(Ordering::Relaxed);
        assert_eq!(admitted, expected, "{} in repetition {repetition}", S::NAME);
    }
}

/// Takes mixed costs: never more than the capacity is admitted, and no cost that fits is denied.
fn admits_what_fits<S: Strategy>(limiter: &LocalLimiter<S>, limit: &S::Limit) {
    let (admitted, least_denied) = (counters(), counters());
    least_denied.iter().for_each(|cost| cost.store(u64::MAX, Ordering::Relaxed));
    hammer(|thread, repetition| {
        let key = repetition.to_string();
        for take in 0..3 {
            let cost = ((thread * 5 + take * 3 + repetition) % 7 + 1) as u64;
            if is_taken(limiter, &key, limit, cost) {
                admitted[repetition].fetch_add(cost, Ordering::Relaxed);
            } else {
                least_denied[repetition].fetch_min(cost, Ordering::Relaxed);
            }
        }
    });
    for (repetition, (admitted, denied)) in admitted.iter().zip(least_denied).enumerate() {
        let (admitted, denied) = (admitted.load(Ordering::Relaxed), denied.into_inner());
        let name = S::NAME;
        assert!(admitted <= CAPACITY, "{name}: {admitted} in repetition {repetition}");
        assert!(
            admitted.saturating_add(denied) > CAPACITY,
            "{name}: {denied} was denied after {admitted} in repetition {repetition}"
        );
    }
}

fn fixed() -> FixedWindowLimit {
    FixedWindowLimit::new(CAPACITY, WINDOW).unwrap()
}

fn sliding() -> SlidingWindowLimit {
    SlidingWindowLimit::new(CAPACITY, WINDOW).unwrap()
}

/// The longest hold, during which the clock of the threads stands still.
fn holders() -> ConcurrencyLimit {
    ConcurrencyLimit::new(CAPACITY, Duration::from_secs(3_600)).unwrap()
}

fn buckets() -> TokenBucketLimits {
    let tighter = TokenLimit::new(CAPACITY, WINDOW).unwrap();
    let wider = TokenLimit::new(CAPACITY + 1, WINDOW).unwrap();
    TokenBucketLimits::new([wider, tighter]).unwrap()
}

/// A limit whose threshold is one above the capacity, because the attempt that reaches the threshold is
/// denied.
fn attempts() -> AbuseLimit {
    let tier = AbuseTier::new(WINDOW, CAPACITY + 1, WINDOW).unwrap();
    AbuseLimit::new(tier, tier)
}

/// A rate that yields the capacity over the longest window.
fn rate() -> (RateLimit, WindowSizeSeconds, RateGroupSizeMs) {
    let window = WINDOW.as_secs();
    (
        RateLimit::try_from(CAPACITY as f64 / window as f64).unwrap(),
        WindowSizeSeconds::try_from(window).unwrap(),
        RateGroupSizeMs::try_from(10).unwrap(),
    )
}

fn suppressed(factor: f64) -> SuppressedLimit {
    let (rate, window, group) = rate();
    let factor = HardLimitFactor::try_from(factor).unwrap();
    SuppressedLimit::new(rate, window, group, factor)
}

fn absolute() -> trypema::AbsoluteLimit {
    let (rate, window, group) = rate();
    trypema::AbsoluteLimit::new(rate, window, group)
}

#[test]
fn absolute_admits_its_capacity_exactly() {
    let rl = at_one_instant();
    admits_exactly(rl.local().absolute(), &absolute(), CAPACITY);
}

#[test]
fn suppressed_without_headroom_admits_its_capacity_exactly() {
    let rl = at_one_instant();
    admits_exactly(rl.local().suppressed(), &suppressed(1.0), CAPACITY);
}

/// Draws depend on the order of calls, not on the thread, so as many calls are admitted as for a single
/// caller.
#[test]
fn suppressed_draws_as_for_one_caller() {
    let limit = suppressed(2.0);
    let alone = at_one_instant();
    let calls = (0..THREADS * 4).filter(|_| is_taken(alone.local().suppressed(), "k", &limit, 1));
    let serial = calls.count() as u64;
    assert!((CAPACITY..=2 * CAPACITY).contains(&serial));
    let rl = at_one_instant();
    admits_exactly(rl.local().suppressed(), &limit, serial);
}

#[test]
fn token_buckets_admit_their_capacity_exactly() {
    let rl = at_one_instant();
    admits_exactly(rl.local().token_bucket(), &buckets(), CAPACITY);
}

#[test]
fn sliding_windows_admit_their_limit_exactly() {
    let rl = at_one_instant();
    admits_exactly(rl.local().sliding_window(), &sliding(), CAPACITY);
}

#[test]
fn fixed_windows_admit_their_limit_exactly() {
    let rl = at_one_instant();
    admits_exactly(rl.local().fixed_window(), &fixed(), CAPACITY);
}

#[test]
fn concurrency_admits_its_limit_exactly() {
    let rl = at_one_instant();
    admits_exactly(rl.local().concurrency(), &holders(), CAPACITY);
}

#[test]
fn abuse_admits_all_attempts_but_the_last_exactly() {
    let rl = at_one_instant();
    admits_exactly(rl.local().abuse(), &attempts(), CAPACITY);
}

#[test]
fn mixed_costs_leave_out_nothing_that_fits() {
    let rl = at_one_instant();
    let local = rl.local();
    admits_what_fits(local.absolute(), &absolute());
    admits_what_fits(local.suppressed(), &suppressed(1.0));
    admits_what_fits(local.token_bucket(), &buckets());
    admits_what_fits(local.sliding_window(), &sliding());
    admits_what_fits(local.fixed_window(), &fixed());
    admits_what_fits(local.concurrency(), &holders());
}

/// A denied attempt blocks the key, so only the largest denied cost certainly did not fit.
#[test]
fn mixed_attempts_never_pass_the_threshold() {
    let rl = at_one_instant();
    let (admitted, most_denied) = (counters(), counters());
    hammer(|thread, repetition| {
        let (key, limit) = (repetition.to_string(), attempts());
        for take in 0..3 {
            let cost = ((thread * 5 + take * 3 + repetition) % 7 + 1) as u64;
            if is_taken(rl.local().abuse(), &key, &limit, cost) {
                admitted[repetition].fetch_add(cost, Ordering::Relaxed);
            } else {
                most_denied[repetition].fetch_max(cost, Ordering::Relaxed);
            }
        }
    });
    for (admitted, denied) in admitted.into_iter().zip(most_denied) {
        let (admitted, denied) = (admitted.into_inner(), denied.into_inner());
        assert!(admitted <= CAPACITY && admitted + denied > CAPACITY);
    }
}

/// The system clock moves during the race, and is read before the lock is taken.
#[test]
fn the_system_clock_admits_the_capacity_exactly() {
    fn race<S: Strategy>(limiter: &LocalLimiter<S>, limit: &S::Limit) {
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let ann = limiter.key("ann");
                    let taken = (0..2_000).filter(|call| match call % 2 {
                        0 => is_taken(limiter, "ann", limit, 1),
                        _ => S::core(&ann.take(limit, 1)).is_allowed(),
                    });
                    admitted.fetch_add(taken.count() as u64, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(admitted.into_inner(), CAPACITY, "{}", S::NAME);
    }

    for _ in 0..20 {
        let rl = RateLimiter::builder().build().unwrap();
        let local = rl.local();
        race(local.absolute(), &absolute());
        race(local.suppressed(), &suppressed(1.0));
        race(local.token_bucket(), &buckets());
        race(local.sliding_window(), &sliding());
        race(local.fixed_window(), &fixed());
        race(local.abuse(), &attempts());
        race(local.concurrency(), &holders());
    }
}
