//! The hybrid provider while Redis, the network or an instance fails: the rows of the fault table in `docs/guarantees.md`.
//!
//! Never over the limit, but by what Redis itself forgot; an answer in time, by the policy that was chosen; and back to work
//! afterwards.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

/// Runs a row for every strategy whose units are leased.
macro_rules! for_every_leased {
    ($row:ident) => {{
        $row::<trypema::strategy::Absolute>();
        $row::<trypema::strategy::Suppressed>();
        $row::<trypema::strategy::TokenBucket>();
        $row::<trypema::strategy::SlidingWindow>();
        $row::<trypema::strategy::FixedWindow>();
    }};
}

mod abuse;
mod failover;
mod forgetting;
mod instances;
mod late;
mod network;
mod policies;
mod scene;
mod storm;
