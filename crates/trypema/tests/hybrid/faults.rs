//! The hybrid provider while Redis, the network or an instance fails: the rows of the fault table in
//! `docs/guarantees.md`.
//!
//! In every row, admissions exceed the limit at most by what Redis itself lost, each call returns in time by
//! the configured policy, and normal operation resumes afterwards.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

/// Runs a row for every strategy that leases units.
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
