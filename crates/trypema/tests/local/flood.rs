//! Hostile keys: more than the capacity, very long ones, and ones that are used only once.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;
use std::time::Duration;

use crate::counting_allocator::{allocations, live_bytes};
use trypema::clock::ManualClock;
use trypema::local::LocalLimiter;
use trypema::strategy::Strategy;
use trypema::{
    AbuseLimit, AbuseTier, ConcurrencyLimit, FixedWindowLimit, HardLimitFactor, RateLimit, RateLimiter,
    RateLimiterBuilder, SlidingWindowLimit, TokenBucketLimits, TokenLimit, WhenFull, WindowSizeSeconds,
};

const MAX_KEYS: usize = 1_000;
const HOUR: Duration = Duration::from_secs(3_600);

/// The capacity of each of the limits below.
const CAPACITY: u64 = 3;

struct Flood {
    clock: Arc<ManualClock>,
    rl: RateLimiter,
}

impl Flood {
    fn with(choose: impl FnOnce(RateLimiterBuilder) -> RateLimiterBuilder) -> Self {
        let clock = Arc::new(ManualClock::default());
        let builder = RateLimiter::builder()
            .clock(clock.clone())
            .hard_limit_factor(HardLimitFactor::try_from(1.0).unwrap())
            .window_size_seconds(WindowSizeSeconds::try_from(HOUR.as_secs()).unwrap());
        let rl = choose(builder).build().unwrap();
        Self { clock, rl }
    }
}

fn fixed() -> FixedWindowLimit {
    FixedWindowLimit::new(CAPACITY, HOUR).unwrap()
}

fn holders() -> ConcurrencyLimit {
    ConcurrencyLimit::new(CAPACITY, HOUR).unwrap()
}

fn sliding() -> SlidingWindowLimit {
    SlidingWindowLimit::new(CAPACITY, HOUR).unwrap()
}

fn buckets() -> TokenBucketLimits {
    TokenBucketLimits::from(TokenLimit::new(CAPACITY, HOUR).unwrap())
}

fn attempts() -> AbuseLimit {
    let tier = AbuseTier::new(HOUR, CAPACITY + 1, HOUR).unwrap();
    AbuseLimit::new(tier, tier)
}

fn rate() -> RateLimit {
    RateLimit::try_from(CAPACITY as f64 / HOUR.as_secs() as f64).unwrap()
}

/// Runs the generic function `check` for each of the seven strategies.
macro_rules! for_each_strategy {
    ($flood:expr, $check:expr) => {
        let flood = &$flood;
        let local = flood.rl.local();
        $check(flood, local.absolute(), &local.absolute().limit(&rate()));
        $check(flood, local.suppressed(), &local.suppressed().limit(&rate()));
        $check(flood, local.token_bucket(), &buckets());
        $check(flood, local.sliding_window(), &sliding());
        $check(flood, local.fixed_window(), &fixed());
        $check(flood, local.abuse(), &attempts());
        $check(flood, local.concurrency(), &holders());
    };
}

fn is_taken<S: Strategy>(limiter: &LocalLimiter<S>, key: &str, limit: &S::Limit) -> bool {
    S::core(&limiter.take(key, limit, 1)).is_allowed()
}

/// Takes single units until denied. Returns the number admitted.
fn exhaust<S: Strategy>(limiter: &LocalLimiter<S>, key: &str, limit: &S::Limit) -> u64 {
    (0..).take_while(|_| is_taken(limiter, key, limit)).count() as u64
}

#[test]
fn a_flood_neither_grows_memory_nor_frees_a_key_at_its_limit() {
    fn check<S: Strategy>(_: &Flood, limiter: &LocalLimiter<S>, limit: &S::Limit) {
        for resident in 0..MAX_KEYS {
            assert_eq!(exhaust(limiter, &format!("resident {resident}"), limit), CAPACITY);
        }
        assert_eq!(limiter.len(), MAX_KEYS);
        let hostile = |range: std::ops::Range<usize>| {
            for key in range {
                let admitted = exhaust(limiter, &format!("a hostile key, number {key}"), limit);
                assert!(admitted <= CAPACITY, "{} let {admitted} pass", S::NAME);
                assert_eq!(limiter.len(), MAX_KEYS);
            }
        };
        // The first keys create the shared states, one per shard. With this many keys, every one of about a
        // hundred shards has its own.
        hostile(0..3 * MAX_KEYS);
        let before = live_bytes();
        hostile(3 * MAX_KEYS..13 * MAX_KEYS);
        assert_eq!(live_bytes(), before, "{}", S::NAME);
        for resident in 0..MAX_KEYS {
            let is_free = is_taken(limiter, &format!("resident {resident}"), limit);
            assert!(!is_free, "{} freed resident {resident}", S::NAME);
        }
    }
    for_each_strategy!(Flood::with(|builder| builder.max_keys(MAX_KEYS)), check);
}

#[test]
fn a_key_without_room_gains_nothing_when_room_appears() {
    fn check<S: Strategy>(_: &Flood, limiter: &LocalLimiter<S>, limit: &S::Limit) {
        assert!(is_taken(limiter, "resident", limit));
        assert!(is_taken(limiter, "late", limit));
        assert_eq!(limiter.len(), 1);
        assert!(limiter.reset("resident"));
        assert_eq!(exhaust(limiter, "late", limit), CAPACITY - 1, "{}", S::NAME);
        assert_eq!(limiter.len(), 1, "it has a state of its own now");
        assert!(limiter.live_keys().any(|live| live.key == "late"));
    }
    for_each_strategy!(Flood::with(|builder| builder.max_keys(1)), check);
}

/// Stale states do not count against the capacity.
#[test]
fn stale_keys_take_no_room() {
    fn check<S: Strategy>(flood: &Flood, limiter: &LocalLimiter<S>, limit: &S::Limit) {
        let fill = |name: &str| {
            let keys = (0..MAX_KEYS).map(|key| exhaust(limiter, &format!("{name} {key}"), limit));
            keys.filter(|admitted| *admitted == CAPACITY).count()
        };
        assert_eq!(fill("resident"), MAX_KEYS, "{}", S::NAME);
        flood.clock.advance(3 * HOUR);
        // A new key searches only some slots for a stale one, so the last few keys may have to share.
        assert!(fill("later") >= MAX_KEYS * 9 / 10, "{}", S::NAME);
        assert!(limiter.live_keys().count() >= MAX_KEYS * 9 / 10, "{}", S::NAME);
    }
    // The hash seed is random per limiter, so the test tries several.
    for _ in 0..5 {
        for_each_strategy!(Flood::with(|builder| builder.max_keys(MAX_KEYS)), check);
    }
}

fn evicting(max_keys: usize) -> Flood {
    Flood::with(|builder| builder.max_keys(max_keys).when_full(WhenFull::Evict))
}

#[test]
fn eviction_keeps_the_bound() {
    fn check<S: Strategy>(_: &Flood, limiter: &LocalLimiter<S>, limit: &S::Limit) {
        for key in 0..2 * MAX_KEYS {
            is_taken(limiter, &format!("resident {key}"), limit);
        }
        let before = live_bytes();
        for key in 0..10 * MAX_KEYS {
            is_taken(limiter, &format!("new {key}"), limit);
            assert!(limiter.len() <= MAX_KEYS, "{}", S::NAME);
        }
        let grown = live_bytes() - before;
        // A table may double once more to clear the tombstones of evicted keys.
        assert!(grown < 200 * MAX_KEYS as i64, "{} grew by {grown}", S::NAME);
    }
    for_each_strategy!(evicting(MAX_KEYS), check);
}

#[test]
fn eviction_admits_however_little_room_there_is() {
    fn check<S: Strategy>(_: &Flood, limiter: &LocalLimiter<S>, limit: &S::Limit) {
        for key in 0..2 * MAX_KEYS {
            assert!(is_taken(limiter, &format!("new {key}"), limit), "{} {key}", S::NAME);
        }
    }
    for max_keys in [1, 2, 5, 20, MAX_KEYS] {
        for_each_strategy!(evicting(max_keys), check);
    }
}

#[test]
fn keys_that_never_come_back_are_swept_as_others_come() {
    const KEYS: usize = 1_000_000;
    /// The number of live keys, with a window of 10 ms and a new key every microsecond.
    const LIVE: usize = 10_000;
    let flood = Flood::with(|builder| builder);
    let limit = FixedWindowLimit::new(1, Duration::from_millis(10)).unwrap();
    let windows = flood.rl.local().fixed_window();
    let mut most = 0;
    let mut bytes = 0;
    for key in 0..KEYS {
        assert!(is_taken(windows, &key.to_string(), &limit));
        flood.clock.advance(Duration::from_micros(1));
        if key % 1_000 == 0 {
            most = most.max(windows.len());
        }
        if key == KEYS / 2 {
            bytes = live_bytes();
        }
    }
    assert!(most <= 4 * LIVE, "{most} keys in memory");
    let grown = live_bytes() - bytes;
    assert!(grown <= bytes / 4, "{bytes} grew by {grown}");
}

#[test]
fn endless_keys_take_bounded_memory() {
    const KEYS: i64 = 5;
    fn check<S: Strategy>(_: &Flood, limiter: &LocalLimiter<S>, limit: &S::Limit) {
        let mut key = "x".repeat(10 << 20);
        let before = live_bytes();
        for number in 0..KEYS {
            key.truncate(10 << 20);
            key.push(char::from(b'A' + number as u8));
            assert_eq!(exhaust(limiter, &key, limit), CAPACITY, "{number}");
        }
        let grown = live_bytes() - before;
        // The capacity of the string itself may double once.
        let string = key.capacity() as i64 - (10 << 20);
        assert!(grown - string < KEYS * 4_096, "{} took {grown}", S::NAME);
        assert_eq!(limiter.len() as i64, KEYS, "each is a key of its own");
    }
    for_each_strategy!(Flood::with(|builder| builder), check);
}

#[test]
fn rejections_leave_memory_as_it_was() {
    const REJECTIONS: u64 = 1_000_000;
    fn check<S: Strategy>(flood: &Flood, limiter: &LocalLimiter<S>, limit: &S::Limit) {
        exhaust(limiter, "ann", limit);
        let hammer = |times| {
            for time in 0..times {
                let is_taken = is_taken(limiter, "ann", limit);
                assert!(!is_taken, "{} admitted rejection {time}", S::NAME);
            }
        };
        hammer(1_000);
        let before = (allocations(), live_bytes());
        hammer(REJECTIONS);
        assert_eq!((allocations(), live_bytes()), before, "{}", S::NAME);
        // Spread over time, the observations need one bucket per group and no more.
        let spread = live_bytes();
        for _ in 0..10_000 {
            flood.clock.advance(Duration::from_millis(50));
            limiter.take("ann", limit, 1);
        }
        assert!(live_bytes() - spread < 200_000, "{}", S::NAME);
    }
    for_each_strategy!(Flood::with(|builder| builder), check);
}

#[test]
fn forgetting_gives_memory_back() {
    fn check<S: Strategy>(flood: &Flood, limiter: &LocalLimiter<S>, limit: &S::Limit) {
        let empty = live_bytes();
        for key in 0..200_000 {
            is_taken(limiter, &format!("a key that is kept on the heap, {key}"), limit);
        }
        let full = live_bytes() - empty;
        limiter.forget_stale(Duration::ZERO);
        assert_eq!(limiter.len(), 200_000, "nothing that matters is forgotten");
        flood.clock.advance(3 * HOUR);
        limiter.forget_stale(3 * HOUR);
        assert_eq!(limiter.len(), 200_000, "not stale for long enough");
        limiter.forget_stale(Duration::ZERO);
        assert!(limiter.is_empty());
        let left = live_bytes() - empty;
        assert!(left < full / 20, "{}: {left} of {full}", S::NAME);
    }
    for_each_strategy!(Flood::with(|builder| builder), check);
}
