//! The cost of a call does not depend on the size of the shared state, and the cost of a refund does not
//! depend on the number of later buckets.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;
use std::time::Duration;

use crate::counting_allocator::allocated_bytes;
use trypema::clock::{Clock, ManualClock, SystemClock};
use trypema::local::{LocalLimiter, LocalRateLimiterProvider};
use trypema::strategy::Strategy;
use trypema::{
    AbsoluteLimit, AbuseLimit, AbuseTier, BlockScope, Check, HardLimitFactor, Limit, RateGroupSizeMs,
    RateLimit, RateLimiter, SuppressedLimit, WindowSizeSeconds,
};

/// The maximum number of buckets in a series: 512 KiB.
const BUCKETS: u32 = 65_000;
const GROUP: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

/// The maximum allocation of a call: a condensed copy, the result of `take_all`, and a margin.
const BOUND: u64 = 8 * 1024;

struct Scene {
    clock: Arc<ManualClock>,
    rl: RateLimiter,
}

impl Scene {
    /// A limiter with room for one key only, which a resident key occupies.
    fn full<S: Strategy>(
        limiter: impl Fn(&LocalRateLimiterProvider) -> &LocalLimiter<S>,
        limit: &S::Limit,
    ) -> Self {
        let clock = Arc::new(ManualClock::default());
        let rl = RateLimiter::builder().clock(clock.clone()).max_keys(1).build().unwrap();
        limiter(rl.local()).take("resident", limit, 1);
        Self { clock, rl }
    }

    /// Fills the shared state through keys that do not fit into the table.
    fn fill<S: Strategy>(&self, limiter: &LocalLimiter<S>, limit: &S::Limit, calls: u32) {
        for _ in 0..calls {
            for key in ["ann", "bob", "cid"] {
                limiter.take(key, limit, 1);
            }
            self.clock.advance(GROUP);
        }
    }
}

/// Calls every operation with keys that share a large state.
fn calls_stay_small<S: Strategy>(scene: &Scene, limiter: &LocalLimiter<S>, limit: (&S::Limit, Limit)) {
    let cheap = |what: &str, call: &dyn Fn()| {
        call(); // The first call may grow the state.
        let before = allocated_bytes();
        call();
        let bytes = allocated_bytes() - before;
        assert!(bytes < BOUND, "{}: {what} allocated {bytes} bytes", S::NAME);
    };
    let (own, any) = limit;
    let names = ["ann", "bob", "cid", "dan", "eve", "fay"];
    let checks = names.map(|key| Check::new(key, &any, 1));
    cheap("take", &|| drop(limiter.take("ann", own, 1)));
    cheap("peek", &|| drop(limiter.peek("ann", own, 1)));
    cheap("a denied take", &|| drop(limiter.take("ann", own, u64::from(u32::MAX))));
    cheap("take_up_to", &|| drop(limiter.take_up_to("ann", own, 2)));
    cheap("reserve", &|| drop(limiter.take_with_receipt("ann", own, 1)));
    cheap("take_all", &|| drop(scene.rl.local().take_all(&checks).unwrap()));
    cheap("peek_all", &|| drop(scene.rl.local().peek_all(&checks).unwrap()));
    // Once there is room, keys get their own states, and those are small.
    assert!(limiter.reset("resident"));
    let before = allocated_bytes();
    limiter.take("late", own, 1);
    let bytes = allocated_bytes() - before;
    assert!(bytes < BOUND, "{}: a state of its own takes {bytes} bytes", S::NAME);
}

fn window() -> (RateLimit, WindowSizeSeconds, RateGroupSizeMs) {
    let seconds = u64::from(BUCKETS) / 100;
    (
        RateLimit::try_from(1_000_000.0).unwrap(),
        WindowSizeSeconds::try_from(seconds).unwrap(),
        RateGroupSizeMs::try_from(10).unwrap(),
    )
}

#[test]
fn absolute_calls_of_keys_without_room_copy_little() {
    let (rate, window, group) = window();
    let limit = AbsoluteLimit::new(rate, window, group);
    let scene = Scene::full(|local| local.absolute(), &limit);
    let absolute = scene.rl.local().absolute();
    scene.fill(absolute, &limit, BUCKETS);
    calls_stay_small(&scene, absolute, (&limit, Limit::from(limit)));
}

#[test]
fn suppressed_calls_of_keys_without_room_copy_little() {
    let (_, window, group) = window();
    let factor = HardLimitFactor::try_from(2.0).unwrap();
    let limit = SuppressedLimit::new(RateLimit::try_from(200.0).unwrap(), window, group, factor);
    let scene = Scene::full(|local| local.suppressed(), &limit);
    let suppressed = scene.rl.local().suppressed();
    scene.fill(suppressed, &limit, BUCKETS);
    calls_stay_small(&scene, suppressed, (&limit, Limit::from(limit)));
}

#[test]
fn attempts_of_keys_without_room_copy_little() {
    let tier = AbuseTier::new(3_600 * SECOND, 10_000, SECOND).unwrap();
    let limit = AbuseLimit::new(tier, tier);
    let scene = Scene::full(|local| local.abuse(), &limit);
    let abuse = scene.rl.local().abuse();
    scene.fill(abuse, &limit, 9_990);
    calls_stay_small(&scene, abuse, (&limit, Limit::from(limit)));
}

/// A key in a blocked shared state stays blocked if an operator blocks it for a shorter time.
#[test]
fn a_block_by_hand_releases_no_key_that_is_blocked_for_longer() {
    let tier = |threshold, block| AbuseTier::new(3_600 * SECOND, threshold, block).unwrap();
    let day = AbuseLimit::new(tier(3, 86_400 * SECOND), tier(100, 86_400 * SECOND));
    let minute = AbuseLimit::new(tier(50, 60 * SECOND), tier(100, 60 * SECOND));
    let scene = Scene::full(|local| local.abuse(), &day);
    let (abuse, names) = (scene.rl.local().abuse(), ["ann", "bob", "cid", "dan"]);
    for key in names.iter().cycle().take(100) {
        abuse.take(key, &day, 1);
    }
    // The state that expires last need not be the blocked one.
    let wide = AbuseTier::new(86_400 * 366 * SECOND, 10_000, SECOND).unwrap();
    for key in names {
        abuse.take(key, &AbuseLimit::new(wide, wide), 1);
    }
    for (key, limit) in names.iter().zip([&day, &day, &minute, &minute]) {
        abuse.block(key, SECOND, BlockScope::Temp);
        scene.clock.advance(2 * SECOND);
        let blocked = abuse.usage(key, limit);
        assert!(!blocked.is_allowed(), "{key} was released");
        assert!(blocked.block_ends_after() > 86_000 * SECOND, "{:?}", blocked.block_ends_after());
    }
}

/// A changed limit does not unblock a key in a blocked shared state.
#[test]
fn a_block_outlasts_a_change_of_limit_without_room() {
    let tier = |threshold, block| AbuseTier::new(3_600 * SECOND, threshold, block).unwrap();
    let day = AbuseLimit::new(tier(3, 86_400 * SECOND), tier(100, 86_400 * SECOND));
    let scene = Scene::full(|local| local.abuse(), &day);
    let abuse = scene.rl.local().abuse();
    while abuse.take("ann", &day, 1).is_allowed() {}
    let wide = AbuseTier::new(86_400 * 366 * SECOND, 10_000, SECOND).unwrap();
    for key in ["ann", "bob", "cid", "dan"] {
        abuse.take(key, &AbuseLimit::new(wide, wide), 1);
    }
    let changed = AbuseLimit::new(tier(4, 60 * SECOND), tier(100, 60 * SECOND));
    assert!(!abuse.take("ann", &changed, 1).is_allowed(), "released without room");
    assert!(abuse.reset("resident"));
    assert!(!abuse.take("ann", &changed, 1).is_allowed(), "released with room");
}

/// Eight times the buckets take about eight times as long. A quadratic refund would take sixty-four times as
/// long.
#[test]
fn refunds_of_long_series_are_not_quadratic() {
    let elapsed = |buckets: u32| {
        let clock = Arc::new(ManualClock::default());
        let rl = RateLimiter::builder().clock(clock.clone()).build().unwrap();
        let (rate, window, group) = window();
        let (absolute, limit) = (rl.local().absolute(), AbsoluteLimit::new(rate, window, group));
        let take = |_| {
            clock.advance(GROUP);
            absolute.take_with_receipt("ann", &limit, 3).receipt.unwrap()
        };
        let receipts: Vec<_> = (0..buckets).map(take).collect();
        let started = SystemClock.now();
        // At most 4,096 receipts of a shard can be refunded at a time.
        let each = receipts.iter().step_by(receipts.len().div_ceil(2_048));
        let refunded: u64 = each.map(|receipt| absolute.refund("ann", &limit, receipt)).sum();
        assert!(refunded > 3 * 2_000, "{refunded} of {buckets}");
        let left = 3 * u64::from(buckets) - refunded;
        assert_eq!(absolute.refund_units("ann", &limit, left - 1), left - 1);
        assert_eq!(absolute.refund_units("ann", &limit, 5), 1);
        let ended = SystemClock.now();
        Duration::from_micros(ended.as_micros() - started.as_micros())
    };
    let [few, many] = [BUCKETS / 8, BUCKETS].map(elapsed);
    assert!(many < 40 * few.max(Duration::from_micros(200)), "{many:?} against {few:?}");
}
