//! Every operation concurrently on a few keys: no panic and no deadlock.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Waker};
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::local::LocalLimiter;
use trypema::strategy::Strategy;
use trypema::{
    AbuseLimit, AbuseTier, BlockScope, ConcurrencyLimit, FixedWindowLimit, RateLimit, RateLimiter,
    SlidingWindowLimit, TokenBucketLimits, TokenLimit, WhenFull,
};

const THREADS: u64 = 4;
const STEPS: u64 = 30_000;

/// The timeout of the watchdog. A run takes a few seconds.
const DEADLINE: Duration = Duration::from_secs(120);

/// More keys than the table holds, so that the shared state is used too.
const KEYS: [&str; 6] = ["ann", "bob", "cid", "dot", "eve", "a-key-too-long-to-be-inline"];

/// A bijective mixing function, so that the test needs no random generator.
fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

fn step<S: Strategy>(limiter: &LocalLimiter<S>, limit: &S::Limit, dice: u64) {
    let key = KEYS[(dice % 6) as usize];
    let cost = dice >> 8 & 3;
    match dice >> 16 & 15 {
        0..=4 => drop(limiter.take(key, limit, cost)),
        5 => drop(limiter.peek(key, limit, cost)),
        6 => drop(limiter.take_up_to(key, limit, cost)),
        7 => drop(limiter.reset(key)),
        8 => {
            let reserved = limiter.take_with_receipt(key, limit, cost);
            if let Some(receipt) = reserved.receipt {
                assert!(limiter.refund(key, limit, &receipt) <= cost);
                assert_eq!(limiter.refund(key, limit, &receipt), 0);
            }
        }
        9 => drop(limiter.take_with_receipt_for(key, limit, cost, Duration::from_millis(dice >> 24 & 7))),
        10 => drop(limiter.refund_units(key, limit, cost)),
        11 => limiter.forget_stale(Duration::from_millis(dice >> 24 & 3)),
        12 => assert!(limiter.live_keys().count() <= 2 * KEYS.len()),
        13 => {
            let handle = limiter.key(key);
            handle.take(limit, cost);
            handle.peek(limit, cost);
            handle.take(limit, cost);
        }
        // Manual blocks are kept beyond the capacity.
        14 => assert!(limiter.len() <= 4 + KEYS.len()),
        _ => {
            // A waiter that is dropped after its first poll.
            let wait = pin!(limiter.wait(key, limit, cost, Duration::from_millis(5)));
            let _ = wait.poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}

/// Runs all threads on all strategies of one limiter.
fn stress(when_full: WhenFull) {
    let clock = Arc::new(ManualClock::default());
    let builder = RateLimiter::builder().clock(clock.clone());
    let rl = Arc::new(builder.max_keys(4).when_full(when_full).build().unwrap());
    let (done, all_done) = channel();
    for thread in 0..THREADS {
        let (rl, clock, done) = (Arc::clone(&rl), Arc::clone(&clock), done.clone());
        // Not scoped: a thread that hangs must not block the watchdog.
        std::thread::spawn(move || run(thread, &rl, &clock, &done));
    }
    drop(done);
    for _ in 0..THREADS {
        let finished = all_done.recv_timeout(DEADLINE);
        assert!(finished.is_ok(), "a thread panicked or hangs: {finished:?}");
    }
}

fn run(thread: u64, rl: &RateLimiter, clock: &ManualClock, done: &Sender<()>) {
    let millis = Duration::from_millis;
    let fixed = FixedWindowLimit::new(5, millis(4)).unwrap();
    let sliding = SlidingWindowLimit::new(5, millis(4)).unwrap();
    let buckets = TokenBucketLimits::from(TokenLimit::new(5, millis(4)).unwrap());
    let tier = |window, threshold| AbuseTier::new(millis(window), threshold, millis(3)).unwrap();
    let attempts = AbuseLimit::new(tier(4, 5), tier(8, 9));
    let holders = ConcurrencyLimit::new(5, millis(4)).unwrap();
    let local = rl.local();
    let rate = RateLimit::try_from(0.1).unwrap();
    let (absolute, suppressed) = (local.absolute().limit(&rate), local.suppressed().limit(&rate));
    for number in 0..STEPS {
        let dice = mixed(thread << 32 | number);
        match dice >> 56 & 7 {
            0 => step(local.absolute(), &absolute, dice),
            1 => step(local.suppressed(), &suppressed, dice),
            2 => step(local.fixed_window(), &fixed, dice),
            3 => step(local.sliding_window(), &sliding, dice),
            4 => step(local.token_bucket(), &buckets, dice),
            5 if dice >> 33 & 1 == 0 => step(local.concurrency(), &holders, dice),
            5 => step(local.abuse(), &attempts, dice),
            6 if dice >> 32 & 1 == 0 => local.abuse().block("ann", millis(1), BlockScope::Temp),
            6 => drop(local.abuse().unblock("ann")),
            _ => clock.advance(Duration::from_micros(dice >> 32 & 255)),
        }
    }
    done.send(()).unwrap();
}

#[test]
fn every_verb_at_once_while_new_keys_share() {
    stress(WhenFull::Share);
}

#[test]
fn every_verb_at_once_while_old_keys_are_evicted() {
    stress(WhenFull::Evict);
}
