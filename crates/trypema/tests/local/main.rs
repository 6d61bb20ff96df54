//! The local provider and the pure strategies, on manual clocks and without a server.
//!
//! One test binary per provider or topic: one per file would take minutes to build.

#[path = "../all_or_nothing/mod.rs"]
mod all_or_nothing;
mod allocations;
mod calendar;
mod churn;
mod cleanup;
mod conformance;
#[path = "../counting_allocator/mod.rs"]
mod counting_allocator;
mod extremes;
mod flood;
mod full_table;
mod invalid;
mod multi;
mod observer;
mod overflow;
mod overflow_cost;
mod properties;
mod refunds;
mod reset;
#[path = "../full_table/mod.rs"]
mod shared_full_table;
mod stress;
mod suppressed_goal;
mod threads;
#[path = "../traces/mod.rs"]
mod traces;
mod wait;
