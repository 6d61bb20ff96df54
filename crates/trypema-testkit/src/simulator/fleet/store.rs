//! The store: a model of Redis and its scripts.

use std::collections::BTreeMap;

use trypema::clock::Timestamp;
use trypema::redis::LeaseResponse;
use trypema::strategy::{Call, Leasable, LeaseCall, LeaseGrant, LeaseParams, LeasedUnits};

use super::LIVE_FOR_US;
use super::journal::{Forgotten, Granted, Journal};
use super::message::{Reply, Request, Sender, What};
use crate::model::LiveInstances;

/// All keys of a store.
#[derive(Debug)]
pub(super) struct Store<S: Leasable> {
    keys: BTreeMap<u32, Key<S>>,
    frozen_until: u64,
}

/// One key.
#[derive(Debug)]
struct Key<S: Leasable> {
    /// `None` if there is no state, or if it has expired.
    state: Option<S::State>,
    resets: u32,
    /// The instances that requested leases, with the time of their last request.
    instances: LiveInstances<Sender>,
    /// An independent account of the units that count: their number, by the time at which they were
    /// recorded.
    ledger: BTreeMap<u64, u64>,
}

impl<S: Leasable> Default for Key<S> {
    fn default() -> Self {
        Self { state: None, resets: 0, instances: LiveInstances::default(), ledger: BTreeMap::new() }
    }
}

impl<S: Leasable> Store<S> {
    pub(super) fn new() -> Self {
        Self { keys: BTreeMap::new(), frozen_until: 0 }
    }

    /// Returns a copy, as a replica would have it.
    pub(super) fn copied(&self) -> Self {
        let keys = self.keys.iter().map(|(key, state)| (*key, state.copied())).collect();
        Self { keys, frozen_until: self.frozen_until }
    }

    /// Returns the time until which the store is frozen.
    pub(super) fn frozen_until(&self) -> u64 {
        self.frozen_until
    }

    pub(super) fn freeze(&mut self, until: u64) {
        self.frozen_until = self.frozen_until.max(until);
    }

    /// Processes a request under `limit`. Returns the reply, if there is one.
    pub(super) fn answer(
        &mut self,
        request: Request,
        limit: &S::Limit,
        now: Timestamp,
        journal: &mut Journal,
    ) -> Option<Reply<S>> {
        let key = self.keys.entry(request.key).or_default();
        key.expire(now, S::retention_us(limit));
        let resets = key.resets;
        let leased = match request.what {
            What::Reset => {
                self.reset(request.key, now.as_micros(), journal);
                return None;
            }
            What::Take(waiting) => key.take(limit, now, waiting.cost),
            What::Lease { ask, is_leaving, .. } => {
                let live_for_us = if is_leaving { 0 } else { LIVE_FOR_US };
                let instances = key.instances.heartbeat(request.from, now.as_micros(), live_for_us);
                let is_back_known = ask.unspent.resets == resets && key.state.is_some();
                let back = if is_back_known { ask.unspent } else { LeasedUnits::default() };
                let ask = LeaseParams { unspent: back, ..ask };
                key.taken_back(&ask.unspent);
                let call = LeaseCall { now, params: &ask, instances };
                S::lease(limit, key.state.get_or_insert_default(), call)
            }
        };
        let is_giving_back = matches!(request.what, What::Lease { ask, .. } if ask.unspent.units > 0);
        if leased.units > 0 {
            *key.ledger.entry(leased.recorded.as_micros()).or_default() += leased.units;
        }
        if leased.units > 0 || is_giving_back {
            journal.grants.push(Granted {
                at_us: now.as_micros(),
                key: request.key,
                limit: request.limit,
                units: leased.units,
                until_us: leased.recorded.as_micros(),
            });
        }
        Some(Reply { request, grant: LeaseResponse { lease: leased, now, instances: 0, resets } })
    }

    /// Resets a key. Only the number of resets is kept.
    fn reset(&mut self, key: u32, now: u64, journal: &mut Journal) {
        if let Some(state) = self.keys.get_mut(&key) {
            journal.forgotten.push(Forgotten { at_us: now, key, units: state.counted() });
            state.resets += u32::from(state.state.is_some());
            state.state = None;
            state.ledger.clear();
        }
    }

    /// Loses all keys.
    pub(super) fn flush(&mut self, now: u64, journal: &mut Journal) {
        for (key, state) in std::mem::take(&mut self.keys) {
            journal.forgotten.push(Forgotten { at_us: now, key, units: state.counted() });
        }
    }

    /// Goes back to the state `before`.
    pub(super) fn go_back(&mut self, before: Self, now: u64, journal: &mut Journal) {
        let frozen_until = self.frozen_until;
        for (key, state) in std::mem::replace(self, before).keys {
            let known = self.keys.get(&key).map(|state| &state.ledger);
            let kept = |at: &u64| known.and_then(|ledger| ledger.get(at)).copied().unwrap_or(0);
            let units = state.ledger.iter().map(|(at, units)| units.saturating_sub(kept(at))).sum();
            journal.forgotten.push(Forgotten { at_us: now, key, units });
        }
        self.frozen_until = frozen_until;
    }
}

impl<S: Leasable> Key<S> {
    fn copied(&self) -> Self {
        Self {
            state: self.state.clone(),
            resets: self.resets,
            instances: self.instances.clone(),
            ledger: self.ledger.clone(),
        }
    }

    /// Removes a state that equals a fresh one, as Redis expires keys.
    fn expire(&mut self, now: Timestamp, retention_us: u64) {
        if self.state.as_ref().is_some_and(|state| S::fresh_from(state) <= now) {
            self.state = None;
        }
        let oldest = now.as_micros().saturating_sub(retention_us);
        while let Some(first) = self.ledger.first_entry().filter(|first| *first.key() <= oldest) {
            first.remove();
        }
    }

    fn take(&mut self, limit: &S::Limit, now: Timestamp, cost: u64) -> LeaseGrant<S::Outcome> {
        let state = self.state.get_or_insert_default();
        let call = Call::new(now, cost);
        let outcome = S::decide(limit, state, call);
        S::commit(limit, state, call, &outcome);
        let units = if S::is_admitted(&outcome) { cost } else { 0 };
        LeaseGrant { units, recorded: now, origin: S::origin(state), outcome }
    }

    fn taken_back(&mut self, back: &LeasedUnits) {
        if let Some(units) = self.ledger.get_mut(&back.recorded.as_micros()) {
            *units = units.saturating_sub(back.units);
        }
    }

    fn counted(&self) -> u64 {
        self.ledger.values().sum()
    }
}
