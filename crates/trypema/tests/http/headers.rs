//! Rate limit headers and bodies over HTTP and gRPC, read back by third-party parsers.
#![cfg(feature = "http")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod error_response;
mod fields;
mod grpc;
#[cfg(all(feature = "rules", feature = "redis-tokio"))]
mod in_flight;
mod problem;
#[cfg(feature = "redis-tokio")]
mod redis;
mod retry_after;
mod tightest;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use trypema::clock::{ManualClock, Timestamp};
use trypema::{Decision, FixedWindowLimit, RateLimiter};

/// The longest possible window, so that a test can choose any wait up to it.
const WINDOW: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The largest limit that is counted exactly.
const MAX_LIMIT: u64 = (1 << 53) - 1;

/// Takes `spent` units and then `cost` units of `limit`, at `before_reset` before the end of the window.
/// Returns the second decision.
fn decided(limit: u64, (spent, cost): (u64, u64), before_reset: Duration) -> Decision {
    let end = WINDOW * 2 - before_reset;
    let clock =
        Arc::new(ManualClock::starting_at(Timestamp::from_micros(u64::try_from(end.as_micros()).unwrap())));
    let rl = RateLimiter::builder().clock(clock).build().unwrap();
    let limit = FixedWindowLimit::new(limit, WINDOW).unwrap();
    assert!(rl.local().fixed_window().take("ann", &limit, spent).is_allowed());
    rl.local().fixed_window().take("ann", &limit, cost)
}

fn allowed(limit: u64, remaining: u64, before_reset: Duration) -> Decision {
    decided(limit, (limit - remaining, 0), before_reset)
}

fn denied(wait: Duration) -> Decision {
    decided(1, (1, 1), wait)
}

fn never() -> Decision {
    decided(1, (0, 2), Duration::from_secs(60))
}

/// Policy names that an operator might choose, by mistake or on purpose.
fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[ -~]{0,80}",
        r#"["\\]{0,80}"#,
        Just(String::new()),
        Just("a\r\nSet-Cookie: b=c".to_owned()),
        Just("<script>alert(\"&\")</script>".to_owned()),
        Just("🦀".repeat(30)),
        Just("\u{0}\u{7f}\u{80}\u{2028}".to_owned()),
        Just("n".repeat(10_000)),
    ]
}

fn waits() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (1..3_000_000_u64).prop_map(Duration::from_micros),
        (1..=u64::try_from(WINDOW.as_micros()).unwrap()).prop_map(Duration::from_micros),
    ]
}

/// Rounds up to whole seconds, by a second algorithm.
fn rounded_up(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
}
