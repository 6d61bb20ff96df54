//! One shard of the map: a table of keys with their states. Keys that no longer matter stay until room is needed.

use hashbrown::HashTable;

use super::key::StoredKey;
use super::map::HashedKey;
use super::overflow::Overflow;
use super::receipt::RefundedReceipts;
use crate::clock::Timestamp;
use crate::strategy::Strategy;

/// The number of slots that are swept for a new key if the number of keys is at its bound: few, so that a flood of
/// new keys stays cheap.
const SWEPT_PER_MISS: usize = 8;

/// The number of keys below which a table grows without forgetting any.
const GROWS_FREELY: usize = 28;

/// A table grows for keys that do not matter if one in so many of them returns. So it has at most about so many times
/// the keys that return.
const RETURNING: usize = 16;

/// The capacity above which a table releases memory when three quarters of it are unused.
const SHRINK_ABOVE: usize = 64;

#[derive(Debug)]
pub(super) struct StateEntry<S: Strategy> {
    key: StoredKey,
    pub(super) state: S::State,
}

impl<S: Strategy> StateEntry<S> {
    #[inline(always)]
    fn return_to(&mut self) -> &mut S::State {
        *self.key.has_returned() = true;
        &mut self.state
    }
}

#[derive(Debug)]
pub(super) struct Shard<S: Strategy> {
    table: HashTable<StateEntry<S>>,
    /// The states that keys without room share; `None` if there are none.
    overflow: Option<Box<Overflow<S>>>,
    /// The receipts of this shard that were refunded.
    pub(super) refunded: Option<Box<RefundedReceipts>>,
    /// The slot at which the last sweep ended.
    cursor: u32,
    last_found: LastFound,
}

/// The slot at which a key was last found, in 20 bits, and 12 bits of the key's hash. It is only a hint: the key in the
/// slot may be another one. The hash saves looking for that in memory that is not cached.
#[derive(Debug, Clone, Copy)]
struct LastFound(u32);

impl LastFound {
    const SLOT_BITS: u32 = 20;
    const SLOTS: u32 = 1 << Self::SLOT_BITS;

    #[inline(always)]
    fn new(hash: u64, slot: usize) -> Self {
        Self(Self::tag(hash) | (slot as u32 % Self::SLOTS))
    }

    /// Returns the slot, if the hash may be that of the key.
    #[inline(always)]
    fn slot(self, hash: u64) -> Option<usize> {
        let slot = self.0 ^ Self::tag(hash);
        (slot < Self::SLOTS).then_some(slot as usize)
    }

    /// The hash's lowest bits also place keys in the table, so they tell neighbours apart.
    #[inline(always)]
    fn tag(hash: u64) -> u32 {
        (hash as u32) << Self::SLOT_BITS
    }
}

impl<S: Strategy> Default for Shard<S> {
    fn default() -> Self {
        Self { table: HashTable::new(), overflow: None, refunded: None, cursor: 0, last_found: LastFound(0) }
    }
}

impl<S: Strategy> Shard<S> {
    /// Returns the state of a key. The key that was found last is found again without a search.
    #[inline(always)]
    pub(super) fn find(&mut self, hash: u64, key: &[u8]) -> Option<&mut S::State> {
        let is_at = |slot: usize| self.table.get_bucket(slot).is_some_and(|entry| entry.key.is(key));
        let slot = match self.last_found.slot(hash).filter(|slot| is_at(*slot)) {
            Some(slot) => slot,
            None => {
                let slot = self.table.find_bucket_index(hash, |entry| entry.key.is(key))?;
                self.last_found = LastFound::new(hash, slot);
                slot
            }
        };
        self.table.get_bucket_mut(slot).map(StateEntry::return_to)
    }

    /// Returns the states that keys without room share, created when first used.
    pub(super) fn overflow(&mut self) -> &mut Overflow<S> {
        self.overflow.get_or_insert_default()
    }

    /// Returns the state that keys without room share under `limit`, to be changed in place.
    pub(super) fn shared(&mut self, limit: &S::Limit, now: Timestamp) -> Option<&mut S::State> {
        self.overflow().prepare(limit, now);
        self.prepared(limit)
    }

    /// Returns the same state as [`Shard::shared`], after [`Overflow::prepare`] was called.
    pub(super) fn prepared(&mut self, limit: &S::Limit) -> Option<&mut S::State> {
        let overflow = self.overflow.as_mut()?;
        overflow.index_of(limit).and_then(|place| overflow.state_at(place, limit))
    }

    /// Runs `peek` on the state that decides, under `limit`, for a key without a state of its own.
    pub(super) fn peek_shared<R>(
        &mut self,
        limit: &S::Limit,
        now: Timestamp,
        peek: impl FnOnce(&S::State) -> R,
    ) -> R {
        match &mut self.overflow {
            Some(overflow) => overflow.peek(limit, now, peek),
            None => peek(&S::State::default()),
        }
    }

    /// Returns the state with which a new key under `limit` starts. It is fresh, or counts the units that the
    /// key may have spent while there was no room for it.
    pub(super) fn start(&self, limit: &S::Limit, now: Timestamp) -> S::State {
        self.overflow.as_ref().map_or_else(S::State::default, |overflow| overflow.start(limit, now))
    }

    /// Returns the state with which a new key starts if its limit is not known; see [`Shard::start`].
    pub(super) fn start_under_any_limit(&self, now: Timestamp) -> S::State {
        self.overflow.as_ref().map_or_else(S::State::default, |overflow| overflow.start_under_any_limit(now))
    }

    pub(super) fn insert(&mut self, key: &HashedKey<'_>, state: S::State, hash: impl Fn(&[u8]) -> u64) {
        let entry = StateEntry { key: StoredKey::new(&key.key), state };
        self.table.insert_unique(key.hash, entry, |entry| hash(entry.key.as_bytes()));
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

    /// Prepares for a new key. If the table would have to grow, forgets the keys that are equivalent to fresh ones,
    /// unless many of those have returned since the last time. Then it pays to keep them, and the table grows.
    /// Returns the number of keys forgotten.
    pub(super) fn make_room(&mut self, now: Timestamp) -> usize {
        let before = self.table.len();
        if before < self.table.capacity() || before < GROWS_FREELY {
            return 0;
        }
        let is_fresh = |entry: &StateEntry<S>| S::fresh_from(&entry.state) <= now;
        let (mut fresh, mut returned) = (0, 0);
        for entry in self.table.iter_mut().filter(|entry| is_fresh(entry)) {
            fresh += 1;
            returned += usize::from(*entry.key.has_returned());
        }
        let are_kept = returned * RETURNING >= fresh;
        self.table.retain(|entry| {
            let has_returned = std::mem::take(entry.key.has_returned());
            has_returned || are_kept || !is_fresh(entry)
        });
        before - self.table.len()
    }

    /// Sweeps the next few slots: forgets the keys that are equivalent to fresh ones. Returns the number of
    /// keys forgotten.
    pub(super) fn sweep(&mut self, now: Timestamp) -> usize {
        let places = self.table.num_buckets();
        let mut forgotten = 0;
        for _ in 0..SWEPT_PER_MISS.min(places) {
            self.cursor = (self.cursor + 1) % places as u32;
            if let Ok(entry) = self.table.get_bucket_entry(self.cursor as usize)
                && S::fresh_from(&entry.get().state) <= now
            {
                entry.remove();
                forgotten += 1;
            }
        }
        forgotten
    }

    /// Forgets one of the next few keys, which may still matter: the one that would be forgotten soonest.
    /// Returns whether there was one.
    pub(super) fn evict(&mut self) -> bool {
        let places = self.table.num_buckets();
        let next = (1..=places).map(|step| (self.cursor as usize + step) % places);
        let found =
            next.filter_map(|place| Some((S::fresh_from(&self.table.get_bucket(place)?.state), place)));
        let Some((_, place)) = found.take(SWEPT_PER_MISS).min() else {
            return false;
        };
        match self.table.get_bucket_entry(place) {
            Ok(entry) => {
                entry.remove();
                self.cursor = place as u32;
                self.void_receipts();
                true
            }
            Err(_) => false,
        }
    }

    /// Forgets every key that has been equivalent to a fresh one since `moment`. Returns the number of keys
    /// forgotten.
    pub(super) fn forget_fresh_since(&mut self, moment: Timestamp, hash: impl Fn(&[u8]) -> u64) -> usize {
        let before = self.table.len();
        self.table.retain(|entry| S::fresh_from(&entry.state) > moment);
        let capacity = self.table.capacity();
        if capacity > SHRINK_ABOVE && self.table.len() < capacity / 4 {
            self.table.shrink_to(self.table.len() * 2, |entry| hash(entry.key.as_bytes()));
        }
        if let Some(overflow) = &mut self.overflow {
            overflow.forget_fresh_since(moment);
        }
        self.overflow.take_if(|overflow| overflow.is_empty());
        before - self.table.len()
    }

    /// Voids all receipts, because the takes that they name may be gone.
    pub(super) fn void_receipts(&mut self) {
        if let Some(refunded) = &mut self.refunded {
            refunded.void_all();
        }
    }

    /// Returns every key whose state still matters at `now`, with the time until which it matters.
    pub(super) fn live(&self, now: Timestamp) -> impl Iterator<Item = (&[u8], Timestamp)> {
        let each = self.table.iter().map(|entry| (entry.key.as_bytes(), S::fresh_from(&entry.state)));
        each.filter(move |(_, fresh_from)| *fresh_from > now)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}
