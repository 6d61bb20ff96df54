//! The fault table of `docs/guarantees.md`: the results that callers see and the units that are counted while
//! Redis fails.
//!
//! Each row is a function of the link (our own connection, or a redis-rs connection manager), with several
//! callers that take continuously. `cargo xtask soak faults` measures how late calls return and how soon they
//! succeed again.
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

/// Runs each of these rows with our own connection and with one that the user created.
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
