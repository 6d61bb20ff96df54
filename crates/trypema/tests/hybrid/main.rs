//! The hybrid provider: leases on manual clocks and in real time, with one Redis, many instances, or an
//! unreachable Redis.
//!
//! One test binary, because each part is instantiated for all strategies.
#![cfg(feature = "redis-tokio")]

mod faults;
mod load;
#[cfg(feature = "rules")]
mod rules;
#[path = "../shared_wait/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of the Redis provider")]
mod shared_wait;
mod simulated;
#[path = "../traces/mod.rs"]
mod traces;
mod twins;
mod verbs;
mod wait;
