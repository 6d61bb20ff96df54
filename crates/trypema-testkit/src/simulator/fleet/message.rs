//! What instances and store tell each other.

use trypema::clock::Timestamp;
use trypema::hybrid::Grant;
use trypema::strategy::{Leasable, LeaseAsk};

use super::instance::Waiting;

/// Which instance, and which of those that took its place one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sender {
    pub(super) instance: u32,
    pub(super) life: u32,
}

/// Something an instance asks of the store. It is carried out once, if it arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) from: Sender,
    /// The place of the limit it goes by.
    pub(super) limit: usize,
    pub(super) key: u32,
    pub(super) what: What,
    /// When it was sent, by the clock of the instance.
    pub(super) asked_at: Timestamp,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    /// A plain take for a call.
    Take(Waiting),
    /// A lease, and whether the instance asks for the last time.
    Lease { number: u64, ask: LeaseAsk, is_leaving: bool },
    /// The key is to be forgotten.
    Reset,
}

/// What the store says to a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reply<S: Leasable> {
    pub(super) request: Request,
    pub(super) grant: Grant<S::Outcome>,
}
