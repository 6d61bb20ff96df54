//! The middleware, in front of real services and of test services that record how they are called.
#![cfg(feature = "tower")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod answers;
mod builder;
mod charging;
mod counters;
mod grpc;
#[cfg(feature = "redis-tokio")]
mod hybrid;
mod keys;
mod missing;
mod options;
mod paths;
#[cfg(feature = "redis-tokio")]
mod redis;
mod reserving;
mod rules;
mod scene;
pub(crate) mod served;
mod service;
