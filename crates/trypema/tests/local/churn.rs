//! Keys that have nothing to remember: those that come back stay, and those that do not make room.

#![allow(clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::{RateLimiter, TokenBucketLimits, TokenLimit};

struct Idle {
    clock: Arc<ManualClock>,
    rl: RateLimiter,
    limits: TokenBucketLimits,
}

impl Idle {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let rl = RateLimiter::builder().clock(clock.clone()).build().expect("valid options");
        let limit = TokenLimit::new(1_000, Duration::from_millis(1)).expect("a valid limit");
        Self { clock, rl, limits: limit.into() }
    }

    /// Calls a key whose bucket is full, and fills it again.
    fn call(&self, key: u64) {
        assert!(self.rl.local().token_bucket().take(&format!("user:{key}"), &self.limits, 1).is_allowed());
        self.clock.advance(Duration::from_micros(1));
    }

    fn len(&self) -> usize {
        self.rl.local().token_bucket().len()
    }
}

#[test]
fn idle_keys_that_come_back_are_found() {
    let keys = 400_000;
    let (idle, mut random) = (Idle::new(), 1_u64);
    let mut call_any = |calls: u64| {
        for _ in 0..calls {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            idle.call((random >> 33) % keys);
        }
    };
    call_any(10 * keys);
    let known = idle.len();
    call_any(keys);
    assert!(known as u64 > keys * 99 / 100, "{known}");
    assert!(idle.len() >= known, "{} of {known}", idle.len());
}

#[test]
fn keys_that_are_used_once_make_room() {
    let idle = Idle::new();
    (0..2_000_000).for_each(|key| idle.call(key));
    assert!(idle.len() < 400_000, "{}", idle.len());
}
