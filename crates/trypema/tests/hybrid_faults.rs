//! The hybrid provider while Redis, the network or an instance fails: the rows of the fault table in `docs/guarantees.md`.
//!
//! Never over the limit, but by what Redis itself forgot; an answer in time, by the policy that was chosen; and back to work
//! afterwards.
#![cfg(feature = "redis-tokio")]
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

#[path = "hybrid_faults/abuse.rs"]
mod abuse;
#[path = "hybrid_faults/failover.rs"]
mod failover;
#[path = "hybrid_faults/forgetting.rs"]
mod forgetting;
#[path = "hybrid_faults/instances.rs"]
mod instances;
#[path = "hybrid_faults/late.rs"]
mod late;
#[path = "hybrid_faults/network.rs"]
mod network;
#[path = "hybrid_faults/policies.rs"]
mod policies;
#[path = "hybrid_faults/scene.rs"]
mod scene;
#[path = "hybrid_faults/storm.rs"]
mod storm;
