//! Receipts: what names a take in Redis, so that it can be given back once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::key::RedisKey;
use crate::clock::Timestamp;

/// What one take recorded in Redis, for giving it back with [`Limiter::refund`](super::Limiter::refund).
///
/// A receipt is good for the key and strategy it came from, from any process, once, as long as the take still
/// counts and the key has not been reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub(super) id: u128,
    pub(super) key: RedisKey,
    /// The number of the strategy it was taken by.
    pub(super) strategy: u8,
    pub(super) recorded: Timestamp,
    pub(super) units: u64,
    /// How often the key had been reset.
    pub(super) resets: u32,
}

impl Receipt {
    /// The units that were taken.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// The moment they are counted at, by the server's clock. Units of
    /// [`Limiter::reserve_for`](super::Limiter::reserve_for) may be spent until then, and no longer.
    pub fn recorded_at(&self) -> Timestamp {
        self.recorded
    }
}

/// A decision with the receipt of what it took; `None` also where it was decided in place of Redis.
pub type Reservation<D> = crate::local::Reservation<D, Receipt>;

/// A number that no other receipt of any process has: a random part per process and a count.
pub(super) fn next_id() -> u128 {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let process = *PROCESS.get_or_init(random);
    u128::from(process) << 64 | u128::from(COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The standard library's hash keys are random for each process; hashing the process and the time adds to that.
pub(crate) fn random() -> u64 {
    use std::hash::BuildHasher;
    let seed = (std::process::id(), crate::clock::Source::System.now());
    std::hash::RandomState::new().hash_one(seed)
}
