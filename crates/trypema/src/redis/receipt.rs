//! Receipts: they identify a take in Redis, so that it can be refunded once.

use super::key::RedisKey;
use crate::clock::Timestamp;
use crate::random;
use crate::strategy::Origin;

/// The record of one take in Redis, for a refund with [`RedisLimiter::refund`](super::RedisLimiter::refund).
///
/// Any process can use a receipt, once, for the key and strategy that it came from, while the take still
/// counts and the key has not been reset. After a change of windows or refill rates, it refunds nothing if the
/// units that are left of the take are no longer certain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisReceipt {
    pub(super) id: u128,
    pub(super) key: RedisKey,
    /// The number of the strategy that made the take.
    pub(super) strategy: u8,
    pub(super) recorded: Timestamp,
    /// The count that the units joined.
    pub(super) origin: Origin,
    pub(super) units: u64,
    /// The key's reset count at the take.
    pub(super) resets: u32,
}

impl RedisReceipt {
    /// Returns the number of units that were taken.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Returns the time at which the units are recorded, by the server's clock. Units of
    /// [`RedisLimiter::take_with_receipt_for`](super::RedisLimiter::take_with_receipt_for) may be spent until then, and no
    /// longer.
    pub fn recorded_at(&self) -> Timestamp {
        self.recorded
    }
}

/// Returns an id that no other receipt of any process has.
pub(super) fn next_id() -> u128 {
    u128::from_ne_bytes(random::bytes())
}
