//! Receipts: what names a take, so that it can be given back once.

use std::collections::HashMap;

use super::map::Hashed;
use crate::clock::Timestamp;
use crate::strategy::{Call, Strategy};

/// What one take recorded, for giving it back with [`Limiter::refund`](super::Limiter::refund).
///
/// A receipt is good for the key and limiter it came from, once, and as long as the take still counts. It
/// gives nothing back once a key of the same shard was reset, unblocked or evicted, or while 4,096 refunds of
/// that shard are remembered: a refund can only be stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    pub(super) id: u64,
    pub(super) hash: u64,
    pub(super) recorded: Timestamp,
    pub(super) units: u64,
}

impl Receipt {
    /// The units that were taken.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// The moment they are counted at. Units of [`Limiter::reserve_for`](super::Limiter::reserve_for) may be
    /// spent until then, and no longer.
    pub fn recorded_at(&self) -> Timestamp {
        self.recorded
    }
}

/// A decision with the receipt of what it took.
#[derive(Debug, Clone)]
pub struct Reservation<D, R = Receipt> {
    /// What was decided.
    pub decision: D,
    /// What names the take; `None` when nothing was taken.
    pub receipt: Option<R>,
}

/// How much of what was asked for was granted.
#[derive(Debug, Clone)]
pub struct Granted<D> {
    /// The units that were taken; 0 when none fit.
    pub units: u64,
    /// The decision for these units, or for a single one when none fit.
    pub decision: D,
}

/// A take that was committed.
pub(super) struct Taken<'a, S: Strategy> {
    pub(super) key: &'a Hashed<'a>,
    pub(super) limit: &'a S::Limit,
    pub(super) call: Call,
    pub(super) outcome: &'a S::Outcome,
}

/// At most this many refunds are remembered per shard; while it is full, further ones change nothing, which
/// is stricter.
const MAX_REFUNDED: usize = 4_096;

/// The receipts of a shard that were given back, each until its take no longer counts.
#[derive(Debug, Default)]
pub(super) struct Refunded {
    next_id: u64,
    /// Receipts up to this one are of keys that may have been reset since.
    void_through: u64,
    done: HashMap<u64, Timestamp>,
    /// No receipt of `done` is forgotten before this.
    none_before: Timestamp,
}

impl Refunded {
    pub(super) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// A key was reset, and what its receipts name with it. Those of its neighbours in the shard go as well,
    /// which is stricter and needs no memory.
    pub(super) fn void_all(&mut self) {
        self.void_through = self.next_id;
        self.done.clear();
    }

    /// Whether `id` is given back for the first time; it is remembered until `until`.
    pub(super) fn is_first(&mut self, id: u64, until: Timestamp, now: Timestamp) -> bool {
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
