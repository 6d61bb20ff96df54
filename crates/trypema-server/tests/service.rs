//! The service as its users meet it: the real binary, over real sockets. One binary, so that it is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "service/api.rs"]
mod api;
#[path = "service/client.rs"]
mod client;
#[path = "service/harness.rs"]
mod harness;
