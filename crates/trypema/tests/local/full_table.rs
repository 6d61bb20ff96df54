//! A key has at most 4,096 holders at a time, so that its state is bounded.
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::sync::Arc;

use trypema::RateLimiter;
use trypema::clock::ManualClock;

use crate::shared_full_table::is_bounded;

#[test]
fn the_holders_of_a_key_are_bounded() {
    let clock = Arc::new(ManualClock::default());
    let rl = RateLimiter::builder().clock(clock.clone()).build().unwrap();
    is_bounded(&rl.local().concurrency(), &clock, || None);
}
