//! The arguments of a call for one key.

use super::key::RedisKey;
use crate::strategy::Spend;

/// A cost, and the key and the limit that it is spent on.
#[derive(Debug)]
pub(crate) struct KeySpend<'k, 'l, L> {
    pub(crate) key: &'k RedisKey,
    pub(crate) limit: &'l L,
    pub(crate) spend: Spend,
}

impl<'k, 'l, L> KeySpend<'k, 'l, L> {
    /// Returns a spend of `cost`, all of which must be free.
    pub(crate) fn new(key: &'k RedisKey, limit: &'l L, cost: u64) -> Self {
        Self { key, limit, spend: cost.into() }
    }
}

/// Implemented by hand, because the derived implementations would require `L: Copy`.
impl<L> Clone for KeySpend<'_, '_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for KeySpend<'_, '_, L> {}
