//! Simulated fleets that lease from one store on virtual time: the units they admit together, under any
//! fault.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod accuracy;
mod safety;
