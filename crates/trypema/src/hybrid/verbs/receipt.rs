//! Receipts: what names a take, so that it can be given back once.

use std::sync::{Mutex, PoisonError};

use crate::redis::{Receipt as RedisReceipt, RedisKey};
use crate::strategy::{Back, Leasable};

/// Names what a [`reserve`](super::Limiter::reserve) took.
#[derive(Debug)]
pub struct Receipt {
    key: RedisKey,
    strategy: u8,
    units: u64,
    /// Nothing once it was given back.
    origin: Mutex<Option<Origin>>,
}

/// Where units came from.
#[derive(Debug)]
pub(super) enum Origin {
    /// Out of leases of this instance.
    Leased(Spent),
    Redis(RedisReceipt),
}

/// Units that came out of leases.
#[derive(Debug)]
pub(super) struct Spent {
    pub(super) backs: Vec<Back>,
    /// How often this instance had reset the key.
    pub(super) resets: u64,
    /// How long units count, by the limit they were taken under.
    pub(super) memory_us: u64,
}

/// A decision, and what it takes to give back what it spent.
pub type Reservation<D> = crate::local::Reservation<D, Receipt>;

impl Receipt {
    pub(super) fn new<S: Leasable>(key: &RedisKey, origin: Origin) -> Self {
        let units = match &origin {
            Origin::Leased(spent) => spent.backs.iter().map(|back| back.units).sum(),
            Origin::Redis(receipt) => receipt.units(),
        };
        Self { key: key.clone(), strategy: S::NUMBER, units, origin: Mutex::new(Some(origin)) }
    }

    /// The units that were taken.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Where they came from, the first time that this key asks.
    pub(super) fn redeem<S: Leasable>(&self, key: &RedisKey) -> Option<Origin> {
        let is_its = self.key == *key && self.strategy == S::NUMBER;
        is_its.then(|| self.origin.lock().unwrap_or_else(PoisonError::into_inner).take()).flatten()
    }
}
