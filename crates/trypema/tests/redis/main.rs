//! The Redis provider, on servers that the tests start.

#[cfg(feature = "redis-tokio")]
#[path = "../all_or_nothing/mod.rs"]
mod all_or_nothing;
mod cluster;
mod conformance;
mod exact;
mod expiry;
mod faults;
mod policy;
mod seeds;
mod sentinel;
mod server_of;
mod smol;
#[cfg(feature = "redis-tokio")]
mod strategies;
mod together;
#[cfg(feature = "redis-tokio")]
#[path = "../traces/mod.rs"]
mod traces;
mod wide;
