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

pub use bound::HybridBound;
pub use call_frequency::CallTally;
pub use holding::{Holding, LeaseDecision, LocalDecision, Maintenance, RequestTiming};
pub use pace::Pace;
pub(super) use table::{Table, TableEntry};
