//! What an instance holds of each key, and what it knows about it. Time is an argument; nothing here does I/O.

mod bound;
mod demand;
mod heat;
mod holding;
mod leases;
mod pace;
mod table;

use crate::redis::RedisKey;

pub use bound::HybridBound;
pub use heat::CallTally;
pub use holding::{Chore, Decided, Grant, Holding, Taken, Trip};
pub use pace::Pace;
pub(super) use table::{Entry, Replied, Table};

/// A take: so many units of a key, under a limit.
#[derive(Debug)]
pub(super) struct TakeArgs<'a, L> {
    pub(super) key: &'a RedisKey,
    pub(super) limit: &'a L,
    pub(super) cost: u64,
}

/// Derived, these would ask for a limit that can be copied.
impl<L> Clone for TakeArgs<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for TakeArgs<'_, L> {}
