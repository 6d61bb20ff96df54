//! Receipts: they identify a take in Redis, so that it can be refunded once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::key::RedisKey;
use crate::clock::Timestamp;
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

/// Returns an id that no other receipt of any process has: a random part per process, and a counter.
pub(super) fn next_id() -> u128 {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let process = *PROCESS.get_or_init(random);
    u128::from(process) << 64 | u128::from(COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Returns a random number. The standard library's hash keys are random in each process; the process id and
/// the time add to that.
pub(crate) fn random() -> u64 {
    use std::hash::BuildHasher;
    let seed = (std::process::id(), crate::clock::ClockSource::System.now());
    std::hash::RandomState::new().hash_one(seed)
}
