//! Rules: the file they are written in, and the engine that asks them together.
#![cfg(feature = "rules")]

mod allocations;
#[path = "../counting_allocator/mod.rs"]
mod counting_allocator;
mod engine;
mod yaml;
