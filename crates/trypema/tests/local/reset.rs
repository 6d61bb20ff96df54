//! A reset removes one key and nothing else.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::{FixedWindowLimit, RateLimiter};

/// A regression test: removing a key once moved its neighbours so that they were not found again. All others
/// must stay, however full the table is.
#[test]
fn others_stay() {
    let clock = Arc::new(ManualClock::default());
    let rl = RateLimiter::builder().clock(clock).max_keys(1_000).build().unwrap();
    let (windows, limit) =
        (rl.local().fixed_window(), FixedWindowLimit::new(1, Duration::from_secs(10)).unwrap());
    let key = |number: usize| format!("key {number}");
    for count in 1..500 {
        assert!(windows.take(&key(count), &limit, 1).is_allowed());
        assert!(!windows.reset("never seen"));
        assert!(windows.reset(&key(count)) && windows.take(&key(count), &limit, 1).is_allowed());
        let forgotten = (1..=count).filter(|number| windows.peek(&key(*number), &limit, 1).is_allowed());
        assert_eq!(forgotten.count(), 0, "of {count}");
    }
}
