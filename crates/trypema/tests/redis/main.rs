//! The Redis provider, on servers that the tests start.

#[cfg(feature = "redis-tokio")]
#[path = "../all_or_nothing/mod.rs"]
mod all_or_nothing;
#[cfg(feature = "http")]
mod any_bytes;
mod batching;
#[cfg(feature = "redis-tokio")]
mod calendar;
mod cluster;
mod compat;
mod conformance;
mod deadline;
mod driver;
mod exact;
mod expiry;
mod faults;
mod fork;
mod full_table;
mod newer_state;
mod permissions;
mod policy;
mod runtimes;
mod sentinel;
mod server_of;
#[cfg(feature = "redis-tokio")]
#[path = "../full_table/mod.rs"]
mod shared_full_table;
#[cfg(feature = "redis-tokio")]
#[path = "../shared_wait/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of the hybrid provider")]
mod shared_wait;
mod smol;
mod start_without_redis;
#[cfg(feature = "redis-tokio")]
mod strategies;
#[cfg(feature = "redis-tokio")]
#[path = "../traces/mod.rs"]
mod traces;
mod wait;
mod wide;
mod wrong_address;
