//! The map from keys to states: shards of one cache line, each behind its own lock.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::key::KeyHasher;
use super::shard::Shard;
use crate::clock::Timestamp;
use crate::low_level::{Lock, LockGuard};
use crate::strategy::Strategy;

/// The largest number of shards: enough that threads rarely contend, and that growing one shard takes
/// microseconds. It is three times a power of two, see [`index_for_hash`].
const MAX_SHARDS: usize = 3 << 8;

/// The number of keys per shard that a map with a bound on its keys aims at.
const KEYS_PER_SHARD: usize = 16;

/// The treatment of a new key when `max_keys` keys still matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// New keys share a state for each shard and limit until there is room. This is stricter for them, and
    /// never looser for any key.
    #[default]
    Share,
    /// One of a few known keys is forgotten, together with its spent units. A client that can invent keys can
    /// thereby free a key that is at its limit. Choose this where memory matters more than limits.
    Evict,
}

/// A bound on the keys of a map.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) max_keys: usize,
    pub(crate) when_full: WhenFull,
}

#[derive(Debug)]
pub(super) struct StateMap<S: Strategy> {
    shards: Box<[PaddedShard<S>]>,
    hasher: KeyHasher,
    bound: Option<Bound>,
    /// The number of keys in all shards. Maintained only if it is bounded.
    len: AtomicUsize,
    /// The shard that is searched for room next.
    next_other: AtomicUsize,
}

/// The number of other shards that are searched if there is no room. They are few, so that a flood of new
/// keys stays cheap.
const OTHERS_PER_MISS: usize = 8;

/// A shard on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct PaddedShard<S: Strategy>(Lock<Shard<S>>);

/// A state to keep, with the limit under which it was made.
pub(super) struct NewState<'a, S: Strategy> {
    pub(super) state: S::State,
    pub(super) limit: &'a S::Limit,
    pub(super) now: Timestamp,
}

/// A call: its key, limit and time.
pub(super) struct KeyCall<'a, S: Strategy> {
    pub(super) key: &'a HashedKey<'a>,
    pub(super) limit: &'a S::Limit,
    pub(super) now: Timestamp,
}

/// A key with its hash.
#[derive(Debug, Clone)]
pub(super) struct HashedKey<'k> {
    pub(super) key: Cow<'k, [u8]>,
    pub(super) hash: u64,
}

impl<S: Strategy> StateMap<S> {
    pub(super) fn new(bound: Option<Bound>) -> Self {
        let wanted = bound.map_or(MAX_SHARDS, |bound| bound.max_keys / KEYS_PER_SHARD);
        let shards = 3 * (wanted.min(MAX_SHARDS) / 3).max(1).next_power_of_two();
        let shards = (0..shards).map(|_| PaddedShard(Lock::new(Shard::default()))).collect();
        Self {
            shards,
            hasher: KeyHasher::default(),
            bound,
            len: AtomicUsize::new(0),
            next_other: AtomicUsize::new(0),
        }
    }

    /// Returns the hash of a key that is stored as it is. Returns `None` if the key is too long for that.
    #[inline(always)]
    pub(super) fn short_hash(&self, key: &[u8]) -> Option<u64> {
        KeyHasher::is_short(key).then(|| self.hasher.hash(key))
    }

    pub(super) fn hash_key<'k, K: AsRef<[u8]> + ?Sized>(&self, key: &'k K) -> HashedKey<'k> {
        let key = self.hasher.bounded(key.as_ref());
        HashedKey { hash: self.hasher.hash(&key), key }
    }

    /// Locks the shard of `hash`.
    #[inline(always)]
    pub(super) fn shard(&self, hash: u64) -> LockGuard<'_, Shard<S>> {
        self.shard_at(self.shard_index(hash))
    }

    /// Returns the index of the shard of `hash`.
    #[inline(always)]
    pub(super) fn shard_index(&self, hash: u64) -> usize {
        index_for_hash(hash, self.shards.len())
    }

    /// Locks the shard at `index`. A thread that locks several shards must lock them in the order of their
    /// indexes.
    #[inline(always)]
    pub(super) fn shard_at(&self, index: usize) -> LockGuard<'_, Shard<S>> {
        self.shards[index].0.lock()
    }

    #[cfg(feature = "rules")]
    pub(super) fn bound(&self) -> Option<Bound> {
        self.bound
    }

    /// Whether the number of keys is bounded.
    pub(super) fn is_bounded(&self) -> bool {
        self.bound.is_some()
    }

    /// Reserves room for a new key, if keys without room share a state. [`StateMap::insert_reserved`] uses or
    /// releases it. Returns false if there is no room, so that the key has to use the shared state.
    pub(super) fn try_reserve(&self, shard: &mut Shard<S>, now: Timestamp) -> bool {
        !self.is_sharing() || self.make_room(shard, now)
    }

    /// Keeps the state of a key for which [`StateMap::try_reserve`] found room, if the state matters.
    pub(super) fn insert_reserved(&self, shard: &mut Shard<S>, key: &HashedKey<'_>, new: NewState<'_, S>) {
        let matters = S::fresh_from(&new.state) > new.now;
        match (self.is_sharing(), matters) {
            (true, true) => shard.insert(key, new.state, |key| self.hasher.hash(key)),
            (true, false) => self.count_removed(1),
            (false, true) => self.insert_or_share(shard, key, new),
            (false, false) => {}
        }
    }

    /// Prepares `shard` for a new key: forgets keys that no longer matter, if the shard would have to grow or the
    /// number of keys is at its bound.
    pub(super) fn sweep(&self, shard: &mut Shard<S>, now: Timestamp) {
        let is_at_bound = self.bound.is_some_and(|bound| self.len.load(Ordering::Relaxed) >= bound.max_keys);
        self.count_removed(if is_at_bound { shard.sweep(now) } else { shard.make_room(now) });
    }

    /// Gives a key that is not in `shard` a state of its own, if the number of keys is bounded and there is
    /// room. A caller that decides now and records later then finds the same state again.
    pub(super) fn ensure_state(&self, shard: &mut Shard<S>, call: KeyCall<'_, S>) {
        let KeyCall { key, limit, now } = call;
        if self.bound.is_some() && self.make_room(shard, now) {
            let state = shard.start(limit, now);
            shard.insert(key, state, |key| self.hasher.hash(key));
        }
    }

    /// Keeps the state of a key that is not in `shard`: as its own if there is room or room can be made, and
    /// as the shared one otherwise.
    fn insert_or_share(&self, shard: &mut Shard<S>, key: &HashedKey<'_>, new: NewState<'_, S>) {
        if self.make_room(shard, new.now) {
            shard.insert(key, new.state, |key| self.hasher.hash(key));
        } else if let Some(shared) = shard.shared(new.limit, new.now) {
            *shared = new.state;
        }
    }

    /// Keeps the state of a key that is not in `shard`, even if there is no room.
    pub(super) fn insert_always(&self, shard: &mut Shard<S>, key: &HashedKey<'_>, state: S::State) {
        self.len.fetch_add(usize::from(self.bound.is_some()), Ordering::Relaxed);
        shard.insert(key, state, |key| self.hasher.hash(key));
    }

    pub(super) fn remove(&self, shard: &mut Shard<S>, key: &HashedKey<'_>) -> bool {
        let is_removed = shard.remove(key.hash, &key.key);
        self.count_removed(usize::from(is_removed));
        is_removed
    }

    /// Forgets every key that has been equivalent to a fresh one since `moment`, shard by shard.
    pub(super) fn forget_fresh_since(&self, moment: Timestamp) {
        for shard in &self.shards {
            let forgotten = shard.0.lock().forget_fresh_since(moment, |key| self.hasher.hash(key));
            self.count_removed(forgotten);
        }
    }

    /// Returns the keys of shard `index` that still matter at `now`, or `None` past the last shard.
    pub(super) fn live_keys_in(&self, index: usize, now: Timestamp) -> Option<Vec<(String, Timestamp)>> {
        let text = |(key, until): (&[u8], Timestamp)| (String::from_utf8_lossy(key).into_owned(), until);
        Some(self.shards.get(index)?.0.lock().live(now).map(text).collect())
    }

    /// Returns the number of keys, including those that no longer matter but were not swept yet.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().len()).sum()
    }

    /// Counts one more key if there is room, or if room can be made. Returns whether it did.
    fn make_room(&self, shard: &mut Shard<S>, now: Timestamp) -> bool {
        let Some(bound) = self.bound else { return true };
        if self.try_count_key(bound) {
            return true;
        }
        // This shard was swept already. Another one may have keys that no longer matter.
        let forgotten = self.find_in_other_shards(|other| Some(other.sweep(now)).filter(|keys| *keys > 0));
        self.count_removed(forgotten.unwrap_or(0));
        if self.try_count_key(bound) {
            return true;
        }
        // The evicted key makes room for this one, so the count does not change.
        let evict = |shard: &mut Shard<S>| shard.evict().then_some(());
        bound.when_full == WhenFull::Evict
            && (evict(shard).is_some() || self.find_in_other_shards(evict).is_some())
    }

    /// Whether keys without room share a state. If not, they evict other keys, or there is always room.
    fn is_sharing(&self) -> bool {
        self.bound.is_some_and(|bound| bound.when_full == WhenFull::Share)
    }

    fn try_count_key(&self, bound: Bound) -> bool {
        let one_more = |len: usize| (len < bound.max_keys).then_some(len + 1);
        self.len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Returns the first result of `work` among the next few shards that are not locked.
    fn find_in_other_shards<R>(&self, mut work: impl FnMut(&mut Shard<S>) -> Option<R>) -> Option<R> {
        (0..OTHERS_PER_MISS).find_map(|_| {
            let next = self.next_other.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            self.shards[next].0.try_lock().and_then(|mut other| work(&mut other))
        })
    }

    fn count_removed(&self, keys: usize) {
        if self.bound.is_some() && keys > 0 {
            self.len.fetch_sub(keys, Ordering::Relaxed);
        }
    }
}

/// Returns the shard of `hash` among `shards`, which is three times a power of two.
///
/// A table doubles when it is full. If all shards had equal shares of the keys, all would double at once, and
/// the memory per key would swing by a factor of two. So the last shards get twice the share of the first: a
/// hash at the fraction u of its range belongs to the shard at the fraction u (4 - u) / 3 of the shards.
#[inline(always)]
fn index_for_hash(hash: u64, shards: usize) -> usize {
    // These bits are not used by the tables, neither to place a key nor to tag it.
    let u = (hash >> 24) & ((1 << 31) - 1);
    // The product is at most 3 * 2^62. For 3 * 2^k shards, the shifted product is below 3 * 2^k.
    ((u * ((1 << 33) - u)) >> (62 - shards.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_cover_all_shards_and_no_more() {
        for shards in [3, 6, 192, MAX_SHARDS] {
            assert_eq!(index_for_hash(0, shards), 0);
            assert_eq!(index_for_hash(u64::MAX, shards), shards - 1);
        }
        let mut keys = vec![0_u32; MAX_SHARDS];
        (0..1_u64 << 20).for_each(|i| keys[index_for_hash(i << 35, MAX_SHARDS)] += 1);
        let share = f64::from(keys[MAX_SHARDS - 3]) / f64::from(keys[3]);
        assert!((1.9..2.1).contains(&share), "{share}");
    }

    #[test]
    fn a_shard_fills_one_cache_line() {
        assert_eq!(size_of::<PaddedShard<crate::strategy::Absolute>>(), 64);
    }
}
