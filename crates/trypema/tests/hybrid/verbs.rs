//! Every operation of the hybrid provider and its guarantees, on a manual clock and a real Redis.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

/// Runs a test for every strategy that leases units.
macro_rules! for_every_leased {
    ($claim:ident) => {
        trypema::strategy::for_each_strategy! { [for_every_leased] $claim }
    };
    ($claim:ident $($number:literal $type:ident $name:ident $limit:ident;)+) => {
        $(if <trypema::strategy::$type as trypema::strategy::Leasable>::IS_LEASED {
            $claim::<trypema::strategy::$type>();
        })+
    };
}

/// Runs a test for every leased strategy that never admits more than its limit.
macro_rules! for_every_exact {
    ($claim:ident) => {
        trypema::strategy::for_each_strategy! { [for_every_exact] $claim }
    };
    ($claim:ident $($number:literal $type:ident $name:ident $limit:ident;)+) => {
        $(if <trypema::strategy::$type as trypema::strategy::Leasable>::IS_LEASED
            && stringify!($name) != "suppressed"
        {
            $claim::<trypema::strategy::$type>();
        })+
    };
}

mod abuse;
mod background;
mod bounds;
mod clocks;
mod concurrency;
#[path = "../counting_allocator/mod.rs"]
#[allow(dead_code, reason = "only bytes are of interest here")]
mod counting_allocator;
mod deciding;
mod denials;
mod journal;
mod leaving;
mod multi;
mod observed;
mod receipts;
mod scene;
mod sharing;
#[cfg(feature = "redis-smol")]
mod smol;
mod split;
mod suppressed;
mod threads;
mod windows;
