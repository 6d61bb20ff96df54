//! The server under attack and without Redis: the real binary, broken clients, slow clients, and a Redis that
//! is killed.

#![cfg(feature = "service")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "service/client.rs"]
#[allow(dead_code, unreachable_pub)]
mod client;
#[path = "hostile/faults.rs"]
mod faults;
#[path = "hostile/flood.rs"]
mod flood;
#[cfg(feature = "unstable-testkit")]
#[path = "hostile/front_ends.rs"]
mod front_ends;
#[cfg(feature = "unstable-testkit")]
#[path = "service/front_ends.rs"]
#[allow(dead_code, unreachable_pub)]
mod front_ends_of_tests;
#[path = "service/harness.rs"]
#[allow(dead_code, unreachable_pub)]
mod harness;
#[path = "hostile/heads.rs"]
mod heads;
#[path = "hostile/life.rs"]
mod life;
#[path = "hostile/malformed.rs"]
mod malformed;
#[path = "hostile/process.rs"]
mod process;
#[path = "hostile/slow.rs"]
mod slow;
#[path = "hostile/timing.rs"]
mod timing;
#[path = "hostile/tls.rs"]
mod tls;
