//! Interleavings explored with loom: those of a shard's lock, and of operations on one shard.
//!
//! The tests use two threads. With three, two would wait for the third, and loom would never finish exploring
//! how they alternate. Loom models the flag and the cell of the lock. It does not model the mutex of the
//! clock and the count of keys, and does not need to: loom switches threads only at operations that it
//! models, so no other thread runs while they are in use.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;

use loom::sync::Arc;
use loom::thread;

use super::limiter::LocalLimiter;
use super::map::{Bound, WhenFull};
use crate::clock::{ClockSource, ManualClock};
use crate::low_level::Lock;
use crate::strategy::{FixedWindow, FixedWindowLimit, Strategy, TokenBucket, TokenBucketLimits, TokenLimit};

/// The largest number of preemptions: few enough that the exploration ends, and enough for every race of two
/// critical sections.
const PREEMPTIONS: usize = 3;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

/// Runs `work` in two threads and waits for both.
fn run_threads(work: impl Fn(usize) + Send + Sync + 'static) {
    let work = Arc::new(work);
    let other = Arc::clone(&work);
    let thread = thread::spawn(move || other(1));
    work(0);
    thread.join().unwrap();
}

/// Returns a limiter with few shards, on a clock that does not advance.
fn few_shards<S: Strategy>(max_keys: usize) -> Arc<LocalLimiter<S>> {
    few_shards_on(std::sync::Arc::new(ManualClock::default()), max_keys)
}

fn few_shards_on<S: Strategy>(clock: std::sync::Arc<ManualClock>, max_keys: usize) -> Arc<LocalLimiter<S>> {
    let clock = ClockSource::Custom(clock);
    let bound = Bound { max_keys, when_full: WhenFull::Share };
    Arc::new(LocalLimiter::new(clock, Some(bound), None))
}

fn is_taken<S: Strategy>(limiter: &LocalLimiter<S>, key: &str, limit: &S::Limit) -> bool {
    S::core(&limiter.take(key, limit, 1)).is_allowed()
}

fn fixed(limit: u64) -> FixedWindowLimit {
    FixedWindowLimit::new(limit, Duration::from_secs(3_600)).unwrap()
}

fn bucket(capacity: u64) -> TokenBucketLimits {
    TokenBucketLimits::from(TokenLimit::new(capacity, Duration::from_secs(3_600)).unwrap())
}

/// Increments in two steps, so that a second thread in the critical section would be detected.
fn increment(count: &mut u64) {
    let seen = *count;
    thread::yield_now();
    *count = seen + 1;
}

#[test]
fn loom_two_threads_exclude_each_other() {
    explore(|| {
        let lock = Arc::new(Lock::new(0));
        let shared = Arc::clone(&lock);
        run_threads(move |_| increment(&mut shared.lock()));
        assert_eq!(*lock.lock(), 2);
    });
}

#[test]
fn loom_threads_that_come_back_exclude_each_other() {
    explore(|| {
        let lock = Arc::new(Lock::new(0));
        let shared = Arc::clone(&lock);
        run_threads(move |_| (0..2).for_each(|_| increment(&mut shared.lock())));
        assert_eq!(*lock.lock(), 4);
    });
}

#[test]
fn loom_a_panic_lets_go_of_the_lock() {
    explore(|| {
        let lock = Arc::new(Lock::new(0));
        let shared = Arc::clone(&lock);
        run_threads(move |number| match number {
            0 => {
                let panicking = || {
                    let _held = shared.lock();
                    std::panic::resume_unwind(Box::new("inside"))
                };
                let caught: Result<(), _> = catch_unwind(AssertUnwindSafe(panicking));
                assert!(caught.is_err());
            }
            _ => increment(&mut shared.lock()),
        });
        assert_eq!(*lock.lock(), 1);
    });
}

/// Two threads take twice each from a limit of three: exactly three takes are admitted.
fn admits_three<S: Strategy>(limit: S::Limit) {
    explore(move || {
        let limiter = few_shards::<S>(8);
        let (shared, given) = (Arc::clone(&limiter), limit.clone());
        let admitted = Arc::new(Lock::new(0));
        let total = Arc::clone(&admitted);
        run_threads(move |_| {
            let taken = (0..2).filter(|_| is_taken(&shared, "ann", &given)).count();
            *total.lock() += taken;
        });
        assert_eq!(*admitted.lock(), 3);
    });
}

#[test]
fn loom_fixed_windows_admit_their_limit() {
    admits_three::<FixedWindow>(fixed(3));
}

#[test]
fn loom_token_buckets_admit_their_capacity() {
    admits_three::<TokenBucket>(bucket(3));
}

#[test]
fn loom_handles_and_keys_meet() {
    explore(|| {
        let limiter = few_shards::<FixedWindow>(8);
        let shared = Arc::clone(&limiter);
        run_threads(move |number| {
            let handle = shared.key("ann");
            if number == 0 {
                handle.take(&fixed(2), 1);
                handle.take(&fixed(2), 1);
            } else {
                is_taken(&shared, "ann", &fixed(2));
            }
        });
        assert_eq!(limiter.usage("ann", &fixed(2)).remaining(), 0);
    });
}

/// Two keys in one shard with room for one: the other key is counted in the shared state.
#[test]
fn loom_two_keys_share_a_full_shard() {
    explore(|| {
        let limiter = few_shards::<FixedWindow>(1);
        let shared = Arc::clone(&limiter);
        let admitted = Arc::new(Lock::new([0; 2]));
        let totals = Arc::clone(&admitted);
        run_threads(move |number| {
            let key = ["ann", "bob"][number];
            let taken = (0..2).filter(|_| is_taken(&shared, key, &fixed(1))).count();
            totals.lock()[number] += taken;
        });
        assert_eq!(*admitted.lock(), [1, 1]);
        assert_eq!(limiter.len(), 1);
    });
}

/// One thread runs `work` while the other takes from a bucket whose only token is taken. In the end, `freed`
/// tokens are taken or left. `admissions` are the numbers of admitted takes over all interleavings.
fn take_meets(
    work: impl Fn(&LocalLimiter<TokenBucket>) + Copy + Send + Sync + 'static,
    freed: usize,
    admissions: &[usize],
) {
    let seen = std::sync::Arc::new(Mutex::new(BTreeSet::new()));
    let collected = std::sync::Arc::clone(&seen);
    explore(move || {
        let limiter = few_shards::<TokenBucket>(8);
        assert!(is_taken(&limiter, "ann", &bucket(1)));
        let shared = Arc::clone(&limiter);
        let admitted = Arc::new(Lock::new(0));
        let total = Arc::clone(&admitted);
        run_threads(move |number| match number {
            0 => work(&shared),
            _ => {
                let taken = usize::from(is_taken(&shared, "ann", &bucket(1)));
                *total.lock() += taken;
            }
        });
        let admitted = *admitted.lock();
        let left = limiter.usage("ann", &bucket(1)).remaining() as usize;
        assert_eq!(admitted + left, freed);
        assert_eq!(limiter.len(), 1 - left);
        collected.lock().unwrap().insert(admitted);
    });
    let seen: Vec<usize> = seen.lock().unwrap().iter().copied().collect();
    assert_eq!(seen, admissions);
}

#[test]
fn loom_a_take_meets_a_reset() {
    // A reset frees the units taken before it, and no others.
    take_meets(|limiter| assert!(limiter.reset("ann")), 1, &[0, 1]);
}

#[test]
fn loom_a_take_meets_a_sweep() {
    // A sweep frees no units that still count.
    take_meets(|limiter| limiter.forget_stale(Duration::ZERO), 0, &[0]);
}

/// If a key no longer matters, a reset and a concurrent sweep remove it only once.
#[test]
fn loom_a_reset_meets_a_sweep() {
    explore(|| {
        let clock = std::sync::Arc::new(ManualClock::default());
        let limiter = few_shards_on::<FixedWindow>(clock.clone(), 1);
        assert!(is_taken(&limiter, "ann", &fixed(1)));
        clock.advance(Duration::from_secs(7_200));
        let shared = Arc::clone(&limiter);
        run_threads(move |number| match number {
            0 => shared.forget_stale(Duration::ZERO),
            _ => {
                shared.reset("ann");
            }
        });
        // The key is counted as removed once, so there is room for exactly one.
        assert!(limiter.is_empty());
        assert!(is_taken(&limiter, "bob", &fixed(1)));
        assert!(is_taken(&limiter, "cid", &fixed(1)), "from the shared state");
        assert_eq!(limiter.len(), 1);
    });
}

/// If two threads refund one receipt at the same time, one succeeds.
#[test]
fn loom_a_receipt_is_good_once() {
    explore(|| {
        let limiter = few_shards::<FixedWindow>(8);
        let receipt = limiter.take_with_receipt("ann", &fixed(2), 2).receipt.unwrap();
        let shared = Arc::clone(&limiter);
        let given_back = Arc::new(Lock::new(0));
        let total = Arc::clone(&given_back);
        run_threads(move |_| {
            let units = shared.refund("ann", &fixed(2), &receipt);
            *total.lock() += units;
        });
        assert_eq!(*given_back.lock(), 2);
        assert_eq!(limiter.usage("ann", &fixed(2)).remaining(), 2);
    });
}
