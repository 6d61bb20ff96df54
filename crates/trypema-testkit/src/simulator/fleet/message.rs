//! Messages between instances and store.

use trypema::clock::Timestamp;
use trypema::redis::LeaseResponse;
use trypema::strategy::{Leasable, LeaseParams};

use super::instance::Waiting;

/// An instance, and the number of its restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sender {
    pub(super) instance: u32,
    pub(super) life: u32,
}

/// A request of an instance to the store. The store processes it once, if it arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) from: Sender,
    /// The position of the limit that the instance uses.
    pub(super) limit: usize,
    pub(super) key: u32,
    pub(super) what: What,
    /// The time at which it was sent, by the instance's clock.
    pub(super) requested_at: Timestamp,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    /// A plain take for a call.
    Take(Waiting),
    /// A lease, and whether this is the instance's last request.
    Lease { number: u64, ask: LeaseParams, is_leaving: bool },
    /// A reset of the key.
    Reset,
}

/// The reply of the store to a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reply<S: Leasable> {
    pub(super) request: Request,
    pub(super) grant: LeaseResponse<S::Outcome>,
}
