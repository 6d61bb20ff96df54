//! The middleware, in front of real services and of ones that watch how they are treated.
#![cfg(feature = "tower")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

#[path = "tower/answers.rs"]
mod answers;
#[path = "tower/builder.rs"]
mod builder;
#[path = "tower/charging.rs"]
mod charging;
#[path = "tower/counters.rs"]
mod counters;
#[path = "tower/grpc.rs"]
mod grpc;
#[cfg(feature = "redis-tokio")]
#[path = "tower/hybrid.rs"]
mod hybrid;
#[path = "tower/keys.rs"]
mod keys;
#[path = "tower/options.rs"]
mod options;
#[cfg(feature = "redis-tokio")]
#[path = "tower/redis.rs"]
mod redis;
#[path = "tower/rules.rs"]
mod rules;
#[path = "tower/scene.rs"]
mod scene;
#[path = "tower/served.rs"]
mod served;
#[path = "tower/service.rs"]
mod service;
