//! The arguments of a call for one key.

use super::key::RedisKey;
use super::protocol::Verb;
use crate::strategy::{Payment, Spend};

/// A verb with its numeric arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct VerbArgs {
    pub(super) verb: Verb,
    pub(super) cost: u64,
    pub(super) payment: Payment,
    pub(super) extra: u64,
}

impl VerbArgs {
    pub(super) fn new(verb: Verb, cost: u64) -> Self {
        Self { verb, cost, payment: Payment::Prepaid, extra: 0 }
    }

    /// Returns the same arguments with another payment.
    pub(super) fn with_payment(self, payment: Payment) -> Self {
        Self { payment, ..self }
    }

    pub(super) fn spend(&self) -> Spend {
        Spend { cost: self.cost, payment: self.payment }
    }
}

/// A key, and the limit that applies to it.
#[derive(Debug)]
pub(crate) struct LimitedKey<'k, 'l, L> {
    pub(crate) key: &'k RedisKey,
    pub(crate) limit: &'l L,
}

/// A verb with the key and the limit that it applies to.
#[derive(Debug)]
pub(super) struct VerbCall<'k, 'l, L> {
    pub(super) key: &'k RedisKey,
    pub(super) limit: &'l L,
    pub(super) args: VerbArgs,
}

impl<'k, 'l, L> VerbCall<'k, 'l, L> {
    pub(super) fn new(key: &'k RedisKey, limit: &'l L, args: VerbArgs) -> Self {
        Self { key, limit, args }
    }
}

impl<L> Clone for VerbCall<'_, '_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for VerbCall<'_, '_, L> {}
