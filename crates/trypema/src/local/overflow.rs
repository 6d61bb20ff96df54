//! The states that keys without room share: one per shard and limit.
//!
//! Calls under different limits must not share one state: a short window could forget units that still count
//! in a long one. Takes change a shared state in place, and a key that gets room later starts with a
//! condensed copy of it ([`SharedState::condensed`]). So the cost of a call does not depend on the size of a
//! shared state.

use crate::clock::Timestamp;
use crate::strategy::{SharedState, Strategy};

/// The largest number of shared states per shard, one for each limit. Calls under any further limit use the
/// last state. Operators choose the limits, so there are usually few.
const MAX_LIMITS: usize = 256;

/// The shared states of one shard.
#[derive(Debug)]
pub(super) struct Overflow<S: Strategy> {
    entries: Vec<(S::Limit, S::State)>,
}

impl<S: Strategy> Default for Overflow<S> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<S: Strategy> Overflow<S> {
    /// Ensures that `limit` has an entry. A new entry starts with a copy of the state that a key may have
    /// used under an earlier limit.
    pub(super) fn prepare(&mut self, limit: &S::Limit, now: Timestamp) {
        let own = self.entries.iter().position(|(other, _)| other == limit);
        if own.is_some_and(|index| self.matters(index, now)) {
            return;
        }
        let state = self.start(limit, now);
        if let Some(index) = own {
            self.entries[index].1 = state;
            return;
        }
        if self.entries.len() == MAX_LIMITS {
            self.forget_fresh_since(now);
        }
        if self.entries.len() < MAX_LIMITS {
            self.entries.push((limit.clone(), state));
        }
    }

    /// Returns the index of the entry for calls under `limit`, after [`Overflow::prepare`] was called.
    pub(super) fn index_of(&self, limit: &S::Limit) -> Option<usize> {
        let own = self.entries.iter().position(|(other, _)| other == limit);
        own.or_else(|| self.entries.len().checked_sub(1))
    }

    /// Returns the state at `index`, switched to `limit`.
    pub(super) fn state_at(&mut self, index: usize, limit: &S::Limit) -> Option<&mut S::State> {
        let (_, state) = self.entries.get_mut(index)?;
        state.adopt(limit);
        Some(state)
    }

    /// Returns a condensed copy of the state at `index`, which decides the same at `now`.
    pub(super) fn copy_of(&self, index: usize, now: Timestamp) -> S::State {
        self.entries.get(index).map_or_else(S::State::default, |(limit, state)| state.condensed(limit, now))
    }

    /// Runs `peek` on the state that a take under `limit` would use for a key without room. Adds no entry.
    pub(super) fn peek<R>(
        &mut self,
        limit: &S::Limit,
        now: Timestamp,
        peek: impl FnOnce(&S::State) -> R,
    ) -> R {
        let own = self.entries.iter().position(|(other, _)| other == limit);
        let own = own.filter(|index| self.matters(*index, now));
        let is_full =
            self.entries.len() == MAX_LIMITS && (0..MAX_LIMITS).all(|index| self.matters(index, now));
        let last = || is_full.then_some(MAX_LIMITS - 1);
        match own.or_else(last).and_then(|index| self.state_at(index, limit)) {
            Some(state) => peek(state),
            None => peek(&self.start(limit, now)),
        }
    }

    /// Returns the state with which a new key under `limit` starts: a copy of a shared state, because the key
    /// may have spent units that the shared state counts.
    pub(super) fn start(&self, limit: &S::Limit, now: Timestamp) -> S::State {
        let Some(index) = self.start_index(limit, now) else { return S::State::default() };
        let mut state = self.copy_of(index, now);
        if self.entries[index].0 != *limit {
            self.merge_all_blocks(&mut state);
        }
        state.adopt(limit);
        state
    }

    /// Returns the state with which a new key starts if its limit is not known: a copy of the shared state
    /// that takes longest to become fresh.
    pub(super) fn start_under_any_limit(&self, now: Timestamp) -> S::State {
        let Some(index) = self.longest_live(now) else { return S::State::default() };
        let mut state = self.copy_of(index, now);
        self.merge_all_blocks(&mut state);
        state
    }

    /// Forgets every state that has been equivalent to a fresh one since `moment`.
    pub(super) fn forget_fresh_since(&mut self, moment: Timestamp) {
        self.entries.retain(|(_, state)| S::fresh_from(state) > moment);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the index of the shared state that may count units of a key under `limit`: the state of that
    /// limit; otherwise the last state, if all [`MAX_LIMITS`] are in use; otherwise the state that takes
    /// longest to become fresh, because the key's limit may have changed.
    fn start_index(&self, limit: &S::Limit, now: Timestamp) -> Option<usize> {
        let own = self.entries.iter().position(|(other, _)| other == limit);
        let last = || (self.entries.len() == MAX_LIMITS).then_some(MAX_LIMITS - 1);
        let matters = |index: &usize| self.matters(*index, now);
        own.filter(matters).or_else(|| last().filter(matters)).or_else(|| self.longest_live(now))
    }

    fn longest_live(&self, now: Timestamp) -> Option<usize> {
        let live = (0..self.entries.len()).filter(|index| self.matters(*index, now));
        live.max_by_key(|index| S::fresh_from(&self.entries[*index].1))
    }

    fn matters(&self, index: usize, now: Timestamp) -> bool {
        S::fresh_from(&self.entries[index].1) > now
    }

    /// Extends the blocks of `state` to the longest of all entries, because a block must stay in force when
    /// the limit changes.
    fn merge_all_blocks(&self, state: &mut S::State) {
        self.entries.iter().for_each(|(_, other)| state.merge_blocks(other));
    }
}
