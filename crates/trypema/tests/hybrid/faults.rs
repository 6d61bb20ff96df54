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

#[path = "faults/abuse.rs"]
mod abuse;
#[path = "faults/failover.rs"]
mod failover;
#[path = "faults/forgetting.rs"]
mod forgetting;
#[path = "faults/instances.rs"]
mod instances;
#[path = "faults/late.rs"]
mod late;
#[path = "faults/network.rs"]
mod network;
#[path = "faults/policies.rs"]
mod policies;
#[path = "faults/scene.rs"]
mod scene;
#[path = "faults/storm.rs"]
mod storm;
