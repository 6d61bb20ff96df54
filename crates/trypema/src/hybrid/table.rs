//! The holdings of all keys that an instance holds something of, or knows something about.

use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use hashbrown::HashTable;

use super::holding::Holding;
use super::pace::Pace;
use crate::clock::Timestamp;
use crate::redis::{RedisFailure, RedisKey};
use crate::strategy::Leasable;

/// Enough that threads rarely meet.
const SHARDS: usize = 64;

/// Keys that are held at most, per strategy. A key beyond that is asked for in Redis each time.
const MAX_KEYS: usize = 65_536;

#[derive(Debug)]
pub(super) struct Table<S: Leasable> {
    shards: Box<[Padded<S>]>,
    hasher: foldhash::fast::RandomState,
}

/// A shard on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Padded<S: Leasable>(Mutex<Shard<S>>);

pub(super) type Shard<S> = HashTable<Entry<S>>;

/// One key.
#[derive(Debug)]
pub(super) struct Entry<S: Leasable> {
    pub(super) key: RedisKey,
    hash: u64,
    pub(super) holding: Holding<S>,
    /// Who waits for the answer that is under way.
    pub(super) waiting: Vec<Waker>,
    /// How many answers there have been, and why the last one was none.
    pub(super) answers: u64,
    pub(super) failure: Option<RedisFailure>,
    /// What was asked for before this changed is not wanted any more.
    pub(super) version: u64,
    /// How often the key was reset here.
    pub(super) resets: u64,
}

impl<S: Leasable> Entry<S> {
    /// Goes on under another limit.
    pub(super) fn change_limit(&mut self, limit: &S::Limit, pace: Pace) {
        self.holding.change_limit(limit, pace);
        self.version += 1;
    }

    /// Ends everything that is held, to be given back.
    pub(super) fn end_all(&mut self) {
        self.holding.end_all();
        self.version += 1;
    }

    /// Forgets everything that is held.
    pub(super) fn forget(&mut self) {
        self.holding.forget();
        (self.version, self.resets) = (self.version + 1, self.resets + 1);
    }
}

impl<S: Leasable> Table<S> {
    pub(super) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Padded(Mutex::new(HashTable::new()))).collect();
        Self { shards, hasher: foldhash::fast::RandomState::default() }
    }

    #[inline]
    pub(super) fn hash(&self, key: &RedisKey) -> u64 {
        self.hasher.hash_one(key.as_str())
    }

    /// The place of the shard of `hash`. Whoever locks several shards does it in the order of their places.
    #[inline]
    pub(super) fn place(hash: u64) -> usize {
        (hash >> 40) as usize % SHARDS
    }

    #[inline]
    pub(super) fn shard(&self, place: usize) -> MutexGuard<'_, Shard<S>> {
        self.shards[place % SHARDS].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `act` on what is known of a key, if anything is.
    pub(super) fn with<R>(&self, key: &RedisKey, act: impl FnOnce(&mut Entry<S>) -> R) -> Option<R> {
        let hash = self.hash(key);
        find(&mut self.shard(Self::place(hash)), hash, key).map(act)
    }

    /// Runs `act` on what is known of a key, nothing as yet if it is new; `None` if there is no room for it.
    pub(super) fn with_new<R>(
        &self,
        key: &RedisKey,
        (limit, pace): (&S::Limit, Pace),
        (now, act): (Timestamp, impl FnOnce(&mut Entry<S>) -> R),
    ) -> Option<R> {
        let hash = self.hash(key);
        let mut shard = self.shard(Self::place(hash));
        find_or_add(&mut shard, (hash, key), (limit, pace), now).map(act)
    }

    /// Runs `act` on every key, and forgets those of which it says so.
    pub(super) fn sweep(&self, mut is_kept: impl FnMut(&mut Entry<S>) -> bool) {
        for place in 0..SHARDS {
            let mut shard = self.shard(place);
            shard.retain(&mut is_kept);
            if shard.len() * 4 < shard.capacity() && shard.capacity() > 64 {
                shard.shrink_to_fit(|entry| entry.hash);
            }
        }
    }
}

#[inline]
pub(super) fn find<'a, S: Leasable>(
    shard: &'a mut Shard<S>,
    hash: u64,
    key: &RedisKey,
) -> Option<&'a mut Entry<S>> {
    shard.find_mut(hash, |entry| entry.key == *key)
}

pub(super) fn find_or_add<'a, S: Leasable>(
    shard: &'a mut Shard<S>,
    (hash, key): (u64, &RedisKey),
    (limit, pace): (&S::Limit, Pace),
    now: Timestamp,
) -> Option<&'a mut Entry<S>> {
    if find(shard, hash, key).is_none() {
        if shard.len() >= MAX_KEYS / SHARDS {
            shard.retain(|entry| !entry.holding.is_stale(now) || !entry.waiting.is_empty());
        }
        if shard.len() >= MAX_KEYS / SHARDS {
            return None;
        }
        let entry = Entry {
            key: key.clone(),
            hash,
            holding: Holding::new(limit, pace),
            waiting: Vec::new(),
            answers: 0,
            failure: None,
            version: 0,
            resets: 0,
        };
        shard.insert_unique(hash, entry, |entry| entry.hash);
    }
    find(shard, hash, key)
}
