//! Guarantees of multi-key calls, as test cases that run on each provider.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

pub(crate) mod asked;
pub(crate) mod contention;
pub(crate) mod denials;
pub(crate) mod invalid;
pub(crate) mod postpaid;
pub(crate) mod provider;
pub(crate) mod receipts;
pub(crate) mod stepped_back;
pub(crate) mod told;
