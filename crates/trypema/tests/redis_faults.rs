//! The fault table of `docs/guarantees.md`: what callers see, and what is counted, when Redis fails.
//!
//! Each row is a function of the link (ours, or a client's connection manager), under which several callers take
//! all the time. `cargo xtask soak faults` measures how late calls return and how soon they are served again.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

#[path = "redis_faults/limits.rs"]
mod limits;
#[path = "redis_faults/load.rs"]
mod load;
#[path = "redis_faults/memory.rs"]
mod memory;
#[path = "redis_faults/network.rs"]
mod network;
#[path = "redis_faults/refusals.rs"]
mod refusals;
#[path = "redis_faults/scene.rs"]
mod scene;
#[path = "redis_faults/scripts.rs"]
mod scripts;
#[path = "redis_faults/servers.rs"]
mod servers;
#[path = "redis_faults/strangers.rs"]
mod strangers;

/// Each of these rows with a connection of ours and with one that a user made.
macro_rules! on_both_links {
    ($($row:ident),+ $(,)?) => {
        mod ours {
            $(#[test]
            fn $row() {
                super::$row(crate::scene::Link::Ours);
            })+
        }
        mod manager {
            $(#[test]
            fn $row() {
                super::$row(crate::scene::Link::Manager);
            })+
        }
    };
}
pub(crate) use on_both_links;
