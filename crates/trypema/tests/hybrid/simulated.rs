//! Fleets of instances that lease from one store, on virtual time: what they admit together, whatever goes wrong.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod accuracy;
mod safety;
