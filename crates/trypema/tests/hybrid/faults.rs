//! The hybrid provider while Redis, the network or an instance fails: the rows of the fault table in
//! `docs/guarantees.md`.
//!
//! In every row, admissions exceed the limit at most by what Redis itself lost, each call returns in time by
//! the configured policy, and normal operation resumes afterwards.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

/// Runs a row for every strategy that leases units.
macro_rules! for_every_leased {
    ($row:ident) => {
        trypema::strategy::for_each_strategy! { [for_every_leased] $row }
    };
    ($row:ident $($number:literal $type:ident $name:ident $limit:ident;)+) => {
        $(if <trypema::strategy::$type as trypema::strategy::Leasable>::IS_LEASED {
            $row::<trypema::strategy::$type>();
        })+
    };
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
