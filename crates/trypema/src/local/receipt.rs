//! Receipts, which name takes so that each can be refunded once.

use std::collections::HashMap;

use super::map::HashedKey;
use crate::clock::Timestamp;
use crate::strategy::{Call, Origin, Recorded, Strategy};

/// The receipt of one take, for [`LocalLimiter::refund`](super::LocalLimiter::refund).
///
/// A receipt is valid for the key and limiter that it came from, once, and as long as the take still counts.
/// It refunds nothing after a key of the same shard was reset, unblocked or evicted, or while 4,096 refunds
/// of that shard are remembered, nor after a change of windows or refill rates if the units that are left of
/// the take are no longer certain. Refunding nothing can only make a limit stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalReceipt {
    pub(super) id: u64,
    pub(super) hash: u64,
    pub(super) recorded: Timestamp,
    pub(super) origin: Origin,
    pub(super) units: u64,
}

impl LocalReceipt {
    /// Returns the number of units taken.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Returns the time at which the units are counted. Units of
    /// [`LocalLimiter::take_with_receipt_for`](super::LocalLimiter::take_with_receipt_for) may be spent until then, and no
    /// longer.
    pub fn recorded_at(&self) -> Timestamp {
        self.recorded
    }

    pub(super) fn recorded(&self) -> Recorded {
        Recorded { at: self.recorded, origin: self.origin }
    }
}

/// A decision, with the receipt of the take.
#[derive(Debug, Clone)]
pub struct DecisionWithReceipt<D, R = LocalReceipt> {
    /// The decision.
    pub decision: D,
    /// The receipt. `None` if the take was denied, or if the failure policy decided it.
    pub receipt: Option<R>,
}

/// The part of a cost that was granted.
#[derive(Debug, Clone)]
pub struct Granted<D> {
    /// The number of units taken; 0 if none fit.
    pub units: u64,
    /// The decision for these units, or for a single one if none fit.
    pub decision: D,
}

/// A take that was committed.
pub(super) struct CommittedTake<'a, S: Strategy> {
    pub(super) key: &'a HashedKey<'a>,
    pub(super) limit: &'a S::Limit,
    pub(super) call: Call,
    pub(super) outcome: &'a S::Outcome,
    /// The count that the units joined.
    pub(super) origin: Origin,
}

/// The largest number of refunds that a shard remembers. Further refunds are refused until some are
/// forgotten, which is stricter.
const MAX_REFUNDED: usize = 4_096;

/// The receipts of a shard that were refunded. Each is remembered until its take no longer counts.
#[derive(Debug, Default)]
pub(super) struct RefundedReceipts {
    next_id: u64,
    /// The largest id of a void receipt. All receipts up to this id are void, because their keys may have
    /// been reset.
    void_through: u64,
    done: HashMap<u64, Timestamp>,
    /// The earliest time in `done`. Before that time, there is no receipt to forget.
    none_before: Timestamp,
}

impl RefundedReceipts {
    pub(super) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Voids all receipts given so far, because a key was reset. This includes the receipts of other keys in
    /// the shard, which is stricter and needs no memory.
    pub(super) fn void_all(&mut self) {
        self.void_through = self.next_id;
        self.done.clear();
    }

    /// Whether `id` is refunded for the first time. If so, it is remembered until `until`.
    pub(super) fn mark_refunded(&mut self, id: u64, until: Timestamp, now: Timestamp) -> bool {
        if id <= self.void_through || self.done.contains_key(&id) {
            return false;
        }
        if self.done.len() == MAX_REFUNDED && self.none_before <= now {
            self.done.retain(|_, until| *until > now);
            self.none_before = self.done.values().min().copied().unwrap_or(until);
        }
        if self.done.len() == MAX_REFUNDED {
            return false;
        }
        self.none_before = if self.done.is_empty() { until } else { self.none_before.min(until) };
        self.done.insert(id, until);
        true
    }
}
