//! Interleavings explored with loom: the lock of a shard, and the verbs that meet in one.
//!
//! Two threads at a time: of three, two would wait for the third, and loom explores for ever how they take
//! turns at waiting. Loom models the lock's word and cell. What is not modelled (the clock's mutex, the count
//! of keys) is used as it is: it is never held while another thread could want it, since loom switches threads
//! only at what it models.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;

use loom::sync::Arc;
use loom::thread;

use super::limiter::Limiter;
use super::lock::Lock;
use super::map::{Bound, WhenFull};
use crate::clock::{ManualClock, Source};
use crate::strategy::{FixedWindow, FixedWindowLimit, Strategy, TokenBucket, TokenBucketLimits, TokenLimit};

/// Few enough switches that the exploration ends, enough for every race of two critical sections.
const PREEMPTIONS: usize = 3;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

/// Runs `work` in two threads and waits for both.
fn together(work: impl Fn(usize) + Send + Sync + 'static) {
    let work = Arc::new(work);
    let other = Arc::clone(&work);
    let thread = thread::spawn(move || other(1));
    work(0);
    thread.join().unwrap();
}

/// A limiter with few shards, on a clock that stands still.
fn few_shards<S: Strategy>(max_keys: usize) -> Arc<Limiter<S>> {
    few_shards_on(std::sync::Arc::new(ManualClock::default()), max_keys)
}

fn few_shards_on<S: Strategy>(clock: std::sync::Arc<ManualClock>, max_keys: usize) -> Arc<Limiter<S>> {
    let clock = Source::Custom(clock);
    let bound = Bound { max_keys, when_full: WhenFull::Share };
    Arc::new(Limiter::new(clock, Some(bound), None))
}

fn is_taken<S: Strategy>(limiter: &Limiter<S>, key: &str, limit: &S::Limit) -> bool {
    S::core(&limiter.take(key, limit, 1)).is_allowed()
}

fn fixed(limit: u64) -> FixedWindowLimit {
    FixedWindowLimit::new(limit, Duration::from_secs(3_600)).unwrap()
}

fn bucket(capacity: u64) -> TokenBucketLimits {
    TokenBucketLimits::from(TokenLimit::new(capacity, Duration::from_secs(3_600)).unwrap())
}

/// Counts in two steps, so that a second thread inside would be seen.
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
        together(move |_| increment(&mut shared.lock()));
        assert_eq!(*lock.lock(), 2);
    });
}

#[test]
fn loom_threads_that_come_back_exclude_each_other() {
    explore(|| {
        let lock = Arc::new(Lock::new(0));
        let shared = Arc::clone(&lock);
        together(move |_| (0..2).for_each(|_| increment(&mut shared.lock())));
        assert_eq!(*lock.lock(), 4);
    });
}

#[test]
fn loom_a_panic_lets_go_of_the_lock() {
    explore(|| {
        let lock = Arc::new(Lock::new(0));
        let shared = Arc::clone(&lock);
        together(move |number| match number {
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

/// Two threads, two takes each, of a limit of three: exactly three pass.
fn admits_three<S: Strategy>(limit: S::Limit) {
    explore(move || {
        let limiter = few_shards::<S>(8);
        let (shared, given) = (Arc::clone(&limiter), limit.clone());
        let admitted = Arc::new(Lock::new(0));
        let total = Arc::clone(&admitted);
        together(move |_| {
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
        together(move |number| {
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

/// Two keys in one shard, room for one: the other is counted in the shared state.
#[test]
fn loom_two_keys_share_a_full_shard() {
    explore(|| {
        let limiter = few_shards::<FixedWindow>(1);
        let shared = Arc::clone(&limiter);
        let admitted = Arc::new(Lock::new([0; 2]));
        let totals = Arc::clone(&admitted);
        together(move |number| {
            let key = ["ann", "bob"][number];
            let taken = (0..2).filter(|_| is_taken(&shared, key, &fixed(1))).count();
            totals.lock()[number] += taken;
        });
        assert_eq!(*admitted.lock(), [1, 1]);
        assert_eq!(limiter.len(), 1);
    });
}

/// A bucket of one token, which was taken: one thread does `work`, the other one takes again. `freed` tokens
/// are taken or left in the end, and the numbers of takes seen over all interleavings are `admissions`.
fn take_meets(
    work: impl Fn(&Limiter<TokenBucket>) + Copy + Send + Sync + 'static,
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
        together(move |number| match number {
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
    // A reset frees what was taken before it, and no more.
    take_meets(|limiter| assert!(limiter.reset("ann")), 1, &[0, 1]);
}

#[test]
fn loom_a_take_meets_a_sweep() {
    // A sweep frees nothing that still counts.
    take_meets(|limiter| limiter.forget_stale(Duration::ZERO), 0, &[0]);
}

/// A reset and a sweep of one key that no longer matters: it is gone once.
#[test]
fn loom_a_reset_meets_a_sweep() {
    explore(|| {
        let clock = std::sync::Arc::new(ManualClock::default());
        let limiter = few_shards_on::<FixedWindow>(clock.clone(), 1);
        assert!(is_taken(&limiter, "ann", &fixed(1)));
        clock.advance(Duration::from_secs(7_200));
        let shared = Arc::clone(&limiter);
        together(move |number| match number {
            0 => shared.forget_stale(Duration::ZERO),
            _ => {
                shared.reset("ann");
            }
        });
        // Counted out once: there is room for exactly one.
        assert!(limiter.is_empty());
        assert!(is_taken(&limiter, "bob", &fixed(1)));
        assert!(is_taken(&limiter, "cid", &fixed(1)), "from the shared state");
        assert_eq!(limiter.len(), 1);
    });
}

/// A receipt is good for one of two who hand it in at once.
#[test]
fn loom_a_receipt_is_good_once() {
    explore(|| {
        let limiter = few_shards::<FixedWindow>(8);
        let receipt = limiter.reserve("ann", &fixed(2), 2).receipt.unwrap();
        let shared = Arc::clone(&limiter);
        let given_back = Arc::new(Lock::new(0));
        let total = Arc::clone(&given_back);
        together(move |_| {
            let units = shared.refund("ann", &fixed(2), &receipt);
            *total.lock() += units;
        });
        assert_eq!(*given_back.lock(), 2);
        assert_eq!(limiter.usage("ann", &fixed(2)).remaining(), 2);
    });
}
