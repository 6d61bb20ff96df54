//! The arguments of a call for one key.

use super::ask::Verb;
use super::key::RedisKey;

/// A verb with its numeric arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asking {
    pub(super) verb: Verb,
    pub(super) cost: u64,
    pub(super) extra: u64,
}

impl Asking {
    pub(super) fn new(verb: Verb, cost: u64) -> Self {
        Self { verb, cost, extra: 0 }
    }
}

/// A verb with the key and the limit that it applies to.
#[derive(Debug)]
pub(super) struct KeyCall<'k, 'l, L> {
    pub(super) key: &'k RedisKey,
    pub(super) limit: &'l L,
    pub(super) asking: Asking,
}

impl<'k, 'l, L> KeyCall<'k, 'l, L> {
    pub(super) fn new(key: &'k RedisKey, limit: &'l L, asking: Asking) -> Self {
        Self { key, limit, asking }
    }
}

impl<L> Clone for KeyCall<'_, '_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for KeyCall<'_, '_, L> {}
