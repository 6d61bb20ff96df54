//! The table of all keys that an instance holds units of, or remembers a denial of.

use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_channel::oneshot;
use hashbrown::HashTable;

use super::call_frequency::CallFrequency;
use super::holding::Holding;
use super::pace::Pace;
use crate::clock::Timestamp;
use crate::redis::{KeySpend, RedisFailure, RedisKey};
use crate::strategy::Leasable;

/// The number of shards: enough that threads rarely wait for the same lock.
const SHARDS: usize = 64;

/// The maximum number of keys per strategy. Redis decides every call for a key beyond that.
const MAX_KEYS: usize = 65_536;

#[derive(Debug)]
pub(in crate::hybrid) struct Table<S: Leasable> {
    shards: Box<[PaddedTableShard<S>]>,
    hasher: foldhash::fast::RandomState,
    call_frequency: CallFrequency,
    sync_us: u64,
}

/// A shard on its own cache line.
#[derive(Debug)]
#[repr(align(64))]
struct PaddedTableShard<S: Leasable>(Mutex<TableShard<S>>);

type TableShard<S> = HashTable<TableEntry<S>>;

/// The locked shard of a key, with the key's hash.
pub(in crate::hybrid) struct LockedShard<'a, S: Leasable> {
    hash: u64,
    shard: MutexGuard<'a, TableShard<S>>,
}

/// The entry of one key.
#[derive(Debug)]
pub(in crate::hybrid) struct TableEntry<S: Leasable> {
    pub(in crate::hybrid) key: RedisKey,
    hash: u64,
    pub(in crate::hybrid) holding: Holding<S>,
    /// Calls that wait for the reply to the lease request in progress.
    waiters: Vec<oneshot::Sender<Result<(), RedisFailure>>>,
    /// Incremented when the limit changes or the key is reset. A reply to a request of an earlier version
    /// is not used.
    pub(in crate::hybrid) version: u64,
    /// The number of resets of the key by this instance.
    pub(in crate::hybrid) resets: u64,
}

impl<S: Leasable> TableEntry<S> {
    /// Switches to another limit.
    fn change_limit(&mut self, limit: &S::Limit, pace: Pace) {
        self.holding.change_limit(limit, pace);
        self.version += 1;
    }

    /// Ends all leases. Their units are to be returned.
    pub(in crate::hybrid) fn end_all(&mut self) {
        self.holding.end_all();
        self.version += 1;
    }

    /// Drops all leases and remembered denials, because the key was reset.
    pub(in crate::hybrid) fn forget(&mut self) {
        self.holding.forget();
        (self.version, self.resets) = (self.version + 1, self.resets + 1);
    }

    /// Returns the reply to the lease request in progress. It is cancelled if the request is dropped.
    pub(in crate::hybrid) fn wait_for_reply(&mut self) -> oneshot::Receiver<Result<(), RedisFailure>> {
        let (sender, receiver) = oneshot::channel();
        self.waiters.retain(|waiter| !waiter.is_canceled());
        self.waiters.push(sender);
        receiver
    }

    /// Removes and returns the waiting calls, for notification after the shard is unlocked.
    pub(in crate::hybrid) fn take_waiters(&mut self) -> Vec<oneshot::Sender<Result<(), RedisFailure>>> {
        std::mem::take(&mut self.waiters)
    }

    pub(in crate::hybrid) fn is_waited_for(&self) -> bool {
        !self.waiters.is_empty()
    }
}

impl<S: Leasable> Table<S> {
    pub(in crate::hybrid) fn new(sync_us: u64) -> Self {
        let shards = (0..SHARDS).map(|_| PaddedTableShard(Mutex::new(HashTable::new()))).collect();
        Self {
            shards,
            hasher: foldhash::fast::RandomState::default(),
            call_frequency: CallFrequency::default(),
            sync_us,
        }
    }

    pub(in crate::hybrid) fn pace(&self, limit: &S::Limit) -> Pace {
        Pace::of::<S>(limit, self.sync_us)
    }

    /// Locks the shard of a key.
    #[inline]
    pub(in crate::hybrid) fn shard(&self, key: &RedisKey) -> LockedShard<'_, S> {
        let hash = self.hasher.hash_one(key.as_str());
        LockedShard { hash, shard: self.lock((hash >> 40) as usize % SHARDS) }
    }

    #[inline]
    fn lock(&self, place: usize) -> MutexGuard<'_, TableShard<S>> {
        self.shards[place].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the entry of a key, if there is one under this limit. An entry under another limit is
    /// switched to this one, and not returned.
    #[inline]
    pub(in crate::hybrid) fn find<'s>(
        &self,
        locked: &'s mut LockedShard<'_, S>,
        take: KeySpend<'_, '_, S::Limit>,
    ) -> Option<&'s mut TableEntry<S>> {
        let entry = find(&mut locked.shard, locked.hash, take.key)?;
        if entry.holding.limit() != take.limit {
            entry.change_limit(take.limit, self.pace(take.limit));
            return None;
        }
        Some(entry)
    }

    /// Counts a new call, and returns the entry of its key as [`find`](Self::find) does. Adds an entry if
    /// the key has become busy.
    #[inline]
    pub(in crate::hybrid) fn count_call<'s>(
        &self,
        locked: &'s mut LockedShard<'_, S>,
        take: KeySpend<'_, '_, S::Limit>,
        now: Timestamp,
    ) -> Option<&'s mut TableEntry<S>> {
        let hash = locked.hash;
        if find(&mut locked.shard, hash, take.key).is_none() {
            let interval_us = self.pace(take.limit).interval_us;
            let is_often = S::IS_LEASED && self.call_frequency.count(hash, now.as_micros(), interval_us);
            let added = if is_often { self.find_or_add(locked, take, now) } else { None }?;
            added.holding.warm(now);
            added.holding.count(now, take.spend.cost);
            return Some(added);
        }
        let entry = self.find(locked, take)?;
        entry.holding.count(now, take.spend.cost);
        Some(entry)
    }

    /// Runs `act` on the entry of a key, if there is one.
    pub(in crate::hybrid) fn with<R>(
        &self,
        key: &RedisKey,
        act: impl FnOnce(&mut TableEntry<S>) -> R,
    ) -> Option<R> {
        let LockedShard { hash, mut shard } = self.shard(key);
        find(&mut shard, hash, key).map(act)
    }

    /// Runs `act` on the entry of a key, which is added if necessary. Returns `None` if there is no room
    /// for it.
    pub(in crate::hybrid) fn with_or_insert<R>(
        &self,
        take: KeySpend<'_, '_, S::Limit>,
        now: Timestamp,
        act: impl FnOnce(&mut TableEntry<S>) -> R,
    ) -> Option<R> {
        let mut locked = self.shard(take.key);
        self.find_or_add(&mut locked, take, now).map(act)
    }

    /// Runs `is_kept` on every entry, and removes the entries for which it returns `false`.
    pub(in crate::hybrid) fn sweep(&self, mut is_kept: impl FnMut(&mut TableEntry<S>) -> bool) {
        for place in 0..SHARDS {
            let mut shard = self.lock(place);
            shard.retain(&mut is_kept);
            if shard.len() * 4 < shard.capacity() && shard.capacity() > 64 {
                shard.shrink_to_fit(|entry| entry.hash);
            }
        }
    }

    fn find_or_add<'s>(
        &self,
        LockedShard { hash, shard }: &'s mut LockedShard<'_, S>,
        take: KeySpend<'_, '_, S::Limit>,
        now: Timestamp,
    ) -> Option<&'s mut TableEntry<S>> {
        let (hash, key) = (*hash, take.key);
        if find(shard, hash, key).is_none() {
            if shard.len() >= MAX_KEYS / SHARDS {
                shard.retain(|entry| !entry.holding.is_stale(now) || entry.is_waited_for());
            }
            if shard.len() >= MAX_KEYS / SHARDS {
                return None;
            }
            let holding = Holding::new(take.limit, self.pace(take.limit));
            let waiters = Vec::new();
            let entry = TableEntry { key: key.clone(), hash, holding, waiters, version: 0, resets: 0 };
            shard.insert_unique(hash, entry, |entry| entry.hash);
        }
        find(shard, hash, key)
    }
}

#[inline]
fn find<'a, S: Leasable>(
    shard: &'a mut TableShard<S>,
    hash: u64,
    key: &RedisKey,
) -> Option<&'a mut TableEntry<S>> {
    shard.find_mut(hash, |entry| entry.key == *key)
}
