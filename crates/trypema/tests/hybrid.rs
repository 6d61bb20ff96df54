//! The hybrid provider: leases, on driven clocks and in real time, with one Redis, with many instances, with none.
//!
//! One binary, because every part of it is made for all strategies.
#![cfg(feature = "redis-tokio")]

#[path = "hybrid/faults.rs"]
mod faults;
#[path = "hybrid/load.rs"]
mod load;
#[cfg(feature = "rules")]
#[path = "hybrid/rules.rs"]
mod rules;
#[path = "hybrid/simulated.rs"]
mod simulated;
#[path = "hybrid/twins.rs"]
mod twins;
#[path = "hybrid/verbs.rs"]
mod verbs;
