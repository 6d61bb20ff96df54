//! The fault table of `docs/guarantees.md`: what callers see, and what is counted, when Redis fails.
//!
//! Each row is a function of the link (ours, or a client's connection manager), under which several callers take
//! all the time. `cargo xtask soak faults` measures how late calls return and how soon they are served again.
#![cfg(feature = "redis-tokio")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

pub(crate) mod limits;
mod load;
mod memory;
mod network;
mod refusals;
mod scene;
mod scripts;
mod servers;
mod strangers;

/// Each of these rows with a connection of ours and with one that a user made.
macro_rules! on_both_links {
    ($($row:ident),+ $(,)?) => {
        mod ours {
            $(#[test]
            fn $row() {
                super::$row(crate::faults::scene::Link::Ours);
            })+
        }
        mod manager {
            $(#[test]
            fn $row() {
                super::$row(crate::faults::scene::Link::Manager);
            })+
        }
    };
}
pub(crate) use on_both_links;
