//! The hybrid provider: leases, on driven clocks and in real time, with one Redis, with many instances, with none.
//!
//! One binary, because every part of it is made for all strategies.
#![cfg(feature = "redis-tokio")]

mod faults;
mod load;
#[cfg(feature = "rules")]
mod rules;
mod simulated;
mod twins;
mod verbs;
