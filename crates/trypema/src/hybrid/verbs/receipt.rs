//! Receipts: they identify a take, so that it can be refunded once.

use std::sync::{Mutex, PoisonError};

use crate::redis::{RedisKey, RedisReceipt};
use crate::strategy::{Leasable, LeasedUnits};

/// Identifies the take of a [`take_with_receipt`](super::HybridLimiter::take_with_receipt), for a later refund.
#[derive(Debug)]
pub struct HybridReceipt {
    key: RedisKey,
    strategy: u8,
    units: u64,
    /// `None` once it was refunded.
    origin: Mutex<Option<UnitsOrigin>>,
}

/// The source of the units.
#[derive(Debug)]
pub(super) enum UnitsOrigin {
    /// Leases of this instance.
    Leased(SpentLease),
    Redis(RedisReceipt),
}

/// Units that came out of leases.
#[derive(Debug)]
pub(super) struct SpentLease {
    pub(super) units: Vec<LeasedUnits>,
    /// The number of times that this instance had reset the key.
    pub(super) resets: u64,
    /// The time for which units count, under the limit of the take.
    pub(super) retention_us: u64,
}

impl HybridReceipt {
    pub(super) fn new<S: Leasable>(key: &RedisKey, origin: UnitsOrigin) -> Self {
        let units = match &origin {
            UnitsOrigin::Leased(spent) => spent.units.iter().map(|units| units.units).sum(),
            UnitsOrigin::Redis(receipt) => receipt.units(),
        };
        Self { key: key.clone(), strategy: S::NUMBER, units, origin: Mutex::new(Some(origin)) }
    }

    /// Returns the number of units that were taken.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Removes and returns the source of the units. Returns `None` the second time, and for another key or
    /// strategy.
    pub(super) fn redeem<S: Leasable>(&self, key: &RedisKey) -> Option<UnitsOrigin> {
        let is_its = self.key == *key && self.strategy == S::NUMBER;
        is_its.then(|| self.origin.lock().unwrap_or_else(PoisonError::into_inner).take()).flatten()
    }
}
