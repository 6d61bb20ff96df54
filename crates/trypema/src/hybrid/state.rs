//! The state of each key: leases, denials and demand. Time is an argument, and nothing here does I/O.
//!
//! A busy key has a [`Holding`] in the [`Table`], made of its `leases`, its `demand` and the `pace` of its requests.
//! `call_frequency` counts the calls of all other keys in a table of fixed size.

mod bound;
mod call_frequency;
mod demand;
mod holding;
mod leases;
mod pace;
mod table;

use crate::redis::RedisKey;

pub use bound::HybridBound;
pub use call_frequency::CallTally;
pub use holding::{Holding, LeaseDecision, LocalDecision, Maintenance, RequestTiming, TimedGrant};
pub use pace::Pace;
pub(super) use table::{LeaseRequestResult, Table, TableEntry};

/// The arguments of a take.
#[derive(Debug)]
pub(super) struct TakeArgs<'a, L> {
    pub(super) key: &'a RedisKey,
    pub(super) limit: &'a L,
    pub(super) cost: u64,
}

/// Implemented by hand, because the derived implementations would require `L: Copy`.
impl<L> Clone for TakeArgs<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for TakeArgs<'_, L> {}
