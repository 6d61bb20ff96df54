//! The hybrid provider: leases, on driven clocks and in real time, with one Redis, with many instances, with none.
//!
//! One binary, because every part of it is made for all strategies.
#![cfg(feature = "redis-tokio")]

mod faults;
mod load;
#[cfg(feature = "rules")]
mod rules;
#[path = "../shared_wait/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of the Redis provider")]
mod shared_wait;
mod simulated;
mod twins;
mod verbs;
mod wait;
