//! The local provider, and the strategies themselves: on driven clocks, and no server.
//!
//! One binary for each provider or topic: a binary of its own for each file takes minutes to build.

#[path = "../all_or_nothing/mod.rs"]
mod all_or_nothing;
mod allocations;
mod cleanup;
mod conformance;
#[path = "../counting_allocator/mod.rs"]
mod counting_allocator;
mod extremes;
mod flood;
mod invalid;
mod multi;
mod observer;
mod overflow;
mod overflow_cost;
mod properties;
mod reset;
mod stress;
mod suppressed_goal;
mod threads;
#[path = "../traces/mod.rs"]
mod traces;
mod wait;
