//! One shard of the map: a table of keys with their states, cleaned a little with every new key.

use hashbrown::HashTable;

use super::key::Key;
use super::overflow::Overflow;
use super::receipt::Refunded;
use crate::clock::Timestamp;
use crate::strategy::Strategy;

/// How many places are looked at for forgotten keys when a new key comes: more than the one it fills, so
/// that the table shrinks to what still matters.
const SWEPT_PER_MISS: usize = 8;

/// A table gives memory back when three quarters of it are unused, above this size.
const SHRINK_ABOVE: usize = 64;

#[derive(Debug)]
pub(super) struct Entry<S: Strategy> {
    key: Key,
    pub(super) state: S::State,
}

#[derive(Debug)]
pub(super) struct Shard<S: Strategy> {
    table: HashTable<Entry<S>>,
    /// The states that keys without room share; `None` where there are none.
    overflow: Option<Box<Overflow<S>>>,
    /// Receipts that were given and taken back.
    pub(super) refunded: Option<Box<Refunded>>,
    /// Where the next sweep goes on.
    cursor: usize,
}

impl<S: Strategy> Default for Shard<S> {
    fn default() -> Self {
        Self { table: HashTable::new(), overflow: None, refunded: None, cursor: 0 }
    }
}

impl<S: Strategy> Shard<S> {
    #[inline]
    pub(super) fn find(&mut self, hash: u64, key: &[u8]) -> Option<&mut S::State> {
        self.table.find_mut(hash, |entry| entry.key.is(key)).map(|entry| &mut entry.state)
    }

    /// The place of a key, good until the table changes.
    pub(super) fn place(&self, hash: u64, key: &[u8]) -> Option<usize> {
        self.table.find_bucket_index(hash, |entry| entry.key.is(key))
    }

    /// The state at `place`, if it is still that of `key`.
    #[inline]
    pub(super) fn at(&mut self, place: usize, key: &[u8]) -> Option<&mut S::State> {
        let entry = self.table.get_bucket_mut(place)?;
        entry.key.is(key).then_some(&mut entry.state)
    }

    /// The states that keys without room share, made when first used.
    pub(super) fn overflow(&mut self) -> &mut Overflow<S> {
        self.overflow.get_or_insert_default()
    }

    /// The state that keys without room share under `limit`, to be changed in place.
    pub(super) fn shared(&mut self, limit: &S::Limit, now: Timestamp) -> Option<&mut S::State> {
        self.overflow().prepare(limit, now);
        self.prepared(limit)
    }

    /// The same where [`Overflow::prepare`] has made sure of it before.
    pub(super) fn prepared(&mut self, limit: &S::Limit) -> Option<&mut S::State> {
        let overflow = self.overflow.as_mut()?;
        overflow.place(limit).and_then(|place| overflow.at(place, limit))
    }

    /// Runs `look` on the state that a key without one of its own is decided by under `limit`.
    pub(super) fn peek_shared<R>(
        &mut self,
        limit: &S::Limit,
        now: Timestamp,
        look: impl FnOnce(&S::State) -> R,
    ) -> R {
        match &mut self.overflow {
            Some(overflow) => overflow.peek(limit, now, look),
            None => look(&S::State::default()),
        }
    }

    /// The state that a new key under `limit` starts with: fresh, or counting what it may have spent while
    /// there was no room for it.
    pub(super) fn start(&self, limit: &S::Limit, now: Timestamp) -> S::State {
        self.overflow.as_ref().map_or_else(S::State::default, |overflow| overflow.start(limit, now))
    }

    /// As [`Shard::start`], for a key whose limit is not known.
    pub(super) fn start_under_any_limit(&self, now: Timestamp) -> S::State {
        self.overflow.as_ref().map_or_else(S::State::default, |overflow| overflow.start_under_any_limit(now))
    }

    pub(super) fn insert(&mut self, key: &[u8], state: S::State, hash: impl Fn(&[u8]) -> u64) {
        let entry = Entry { key: Key::new(key), state };
        self.table.insert_unique(hash(key), entry, |entry| hash(entry.key.as_bytes()));
    }

    pub(super) fn remove(&mut self, hash: u64, key: &[u8]) -> bool {
        match self.table.find_entry(hash, |entry| entry.key.is(key)) {
            Ok(entry) => {
                entry.remove();
                self.void_receipts();
                true
            }
            Err(_) => false,
        }
    }

    /// Looks at the next few places and forgets who is as good as fresh; returns how many.
    pub(super) fn sweep(&mut self, now: Timestamp) -> usize {
        let places = self.table.num_buckets();
        let mut forgotten = 0;
        for _ in 0..SWEPT_PER_MISS.min(places) {
            self.cursor = if self.cursor + 1 < places { self.cursor + 1 } else { 0 };
            if let Ok(entry) = self.table.get_bucket_entry(self.cursor)
                && S::fresh_from(&entry.get().state) <= now
            {
                entry.remove();
                forgotten += 1;
            }
        }
        forgotten
    }

    /// Forgets, of the next few keys, the one that would be forgotten soonest: a live one, if need be.
    pub(super) fn evict(&mut self) -> bool {
        let places = self.table.num_buckets();
        let next = (1..=places).map(|step| (self.cursor + step) % places);
        let found =
            next.filter_map(|place| Some((S::fresh_from(&self.table.get_bucket(place)?.state), place)));
        let Some((_, place)) = found.take(SWEPT_PER_MISS).min() else {
            return false;
        };
        match self.table.get_bucket_entry(place) {
            Ok(entry) => {
                entry.remove();
                self.cursor = place;
                self.void_receipts();
                true
            }
            Err(_) => false,
        }
    }

    /// Forgets every key that has been as good as fresh since `moment`; returns how many.
    pub(super) fn forget_since(&mut self, moment: Timestamp, hash: impl Fn(&[u8]) -> u64) -> usize {
        let before = self.table.len();
        self.table.retain(|entry| S::fresh_from(&entry.state) > moment);
        let capacity = self.table.capacity();
        if capacity > SHRINK_ABOVE && self.table.len() < capacity / 4 {
            self.table.shrink_to(self.table.len() * 2, |entry| hash(entry.key.as_bytes()));
        }
        if let Some(overflow) = &mut self.overflow {
            overflow.forget_since(moment);
        }
        self.overflow.take_if(|overflow| overflow.is_empty());
        before - self.table.len()
    }

    /// What receipts name may be gone.
    pub(super) fn void_receipts(&mut self) {
        if let Some(refunded) = &mut self.refunded {
            refunded.void_all();
        }
    }

    /// Every key that still matters at `now`, and until when.
    pub(super) fn live(&self, now: Timestamp) -> impl Iterator<Item = (&[u8], Timestamp)> {
        let each = self.table.iter().map(|entry| (entry.key.as_bytes(), S::fresh_from(&entry.state)));
        each.filter(move |(_, fresh_from)| *fresh_from > now)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}
