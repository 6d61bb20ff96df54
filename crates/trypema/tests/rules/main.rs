//! Rules: the file format, and the engine that evaluates them together.
#![cfg(feature = "rules")]

mod allocations;
#[path = "../counting_allocator/mod.rs"]
mod counting_allocator;
mod engine;
mod traces;
mod yaml;
