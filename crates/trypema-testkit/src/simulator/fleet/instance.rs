//! An instance: it decides calls by its leases, and sends requests to the store for the rest.
//!
//! This mirrors the code of `trypema::hybrid` around its holdings, without tasks, locks and connections.

mod slot;

use std::collections::BTreeMap;

use trypema::clock::Timestamp;
use trypema::hybrid::{LocalDecision, Maintenance, Pace, RequestTiming};
use trypema::strategy::{Leasable, LeaseParams};

use super::journal::Journal;
use super::local_clock::LocalClock;
use super::message::{Reply, Request, Sender, What};
use slot::Slot;

/// The number of waits for other calls' replies after which a call becomes a take in the store.
const MAX_WAITS: u32 = 4;

/// One instance of a service.
#[derive(Debug)]
pub(super) struct Instance<S: Leasable> {
    pub(super) me: Sender,
    pub(super) state: Running,
    clock: LocalClock,
    limit: S::Limit,
    limit_place: usize,
    pace: Pace,
    interval_us: u64,
    slots: BTreeMap<u32, Slot<S>>,
    /// Lease requests without a reply yet, by their number.
    asked: BTreeMap<u64, Asked>,
    numbered: u64,
    /// The number of parts that a key is split into.
    parts: u32,
}

/// A limit, with the times derived from it.
#[derive(Debug)]
pub(super) struct Rule<'a, S: Leasable> {
    /// The position of the limit among the fleet's.
    pub(super) place: usize,
    pub(super) limit: &'a S::Limit,
    pub(super) pace: Pace,
    pub(super) interval_us: u64,
}

/// Whether an instance serves calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Running {
    Up,
    Down,
}

/// A call that is not decided yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    /// Its position in the journal.
    pub(super) call: usize,
    pub(super) cost: u64,
    /// The time, by the instance's clock, after which it no longer waits for others.
    pub(super) until: Timestamp,
    /// The number of attempts.
    pub(super) tries: u32,
    /// The number of other parts of the key that have not been tried yet.
    pub(super) parts_left: u32,
}

/// A lease request without a reply yet.
#[derive(Debug, Clone, Copy)]
struct Asked {
    key: u32,
    ask: LeaseParams,
    asker: Option<Waiting>,
    version: u64,
}

/// The context of an action: the time by the store's clock and by the instance's own, the journal, and the
/// outgoing requests.
#[derive(Debug)]
pub(super) struct Moment<'a> {
    pub(super) now_us: u64,
    pub(super) local: Timestamp,
    pub(super) journal: &'a mut Journal,
    pub(super) outbox: &'a mut Vec<Request>,
}

/// Whether a request may have been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Perhaps,
    Not,
}

impl<S: Leasable> Instance<S> {
    pub(super) fn new(me: Sender, clock: LocalClock, parts: u32, rule: Rule<'_, S>) -> Self {
        Self {
            me,
            state: Running::Up,
            clock,
            limit: rule.limit.clone(),
            limit_place: rule.place,
            pace: rule.pace,
            interval_us: rule.interval_us,
            slots: BTreeMap::new(),
            asked: BTreeMap::new(),
            numbered: 0,
            parts,
        }
    }

    /// Returns the instance's clock.
    pub(super) fn clock(&self) -> LocalClock {
        self.clock
    }

    /// Returns the position of the instance's limit.
    pub(super) fn limit_place(&self) -> usize {
        self.limit_place
    }

    /// Decides a call for `key`, starting with the instance's own part of it.
    pub(super) fn first_call(&mut self, key: u32, waiting: Waiting, moment: &mut Moment<'_>) {
        let own = self.me.instance % self.parts;
        let waiting = Waiting { parts_left: self.parts - 1, ..waiting };
        self.call(key * self.parts + own, waiting, moment);
    }

    /// Decides a call for `key`, or sends a request for it.
    fn call(&mut self, key: u32, waiting: Waiting, moment: &mut Moment<'_>) {
        let now = moment.local;
        let slot = self.slots.entry(key).or_default();
        let is_known = slot.holding.is_some();
        if !is_known && !slot.tally.count(now.as_micros() / self.interval_us) {
            return self.take_in_store(key, waiting, moment);
        }
        let holding = slot.known(&self.limit, self.pace);
        if !is_known {
            holding.warm(now);
        }
        if holding.limit() != &self.limit {
            holding.change_limit(&self.limit, self.pace);
            slot.version += 1;
            return self.take_in_store(key, waiting, moment);
        }
        holding.count(now, waiting.cost);
        self.decide(key, waiting, moment);
    }

    /// Decides a call by its leases, or waits for a reply in flight, or sends a request.
    fn decide(&mut self, key: u32, waiting: Waiting, moment: &mut Moment<'_>) {
        let known = self.slots.get_mut(&key).filter(|slot| slot.holding.is_some());
        let Some(slot) = known.filter(|_| waiting.tries < MAX_WAITS && waiting.until > moment.local) else {
            return self.take_in_store(key, waiting, moment);
        };
        let waiting = Waiting { tries: waiting.tries + 1, ..waiting };
        let now = moment.local;
        let holding = slot.known(&self.limit, self.pace);
        match holding.take_with(now, waiting.cost, |_| {}) {
            LocalDecision::Decided(decided) => {
                if S::is_admitted(&decided.outcome) {
                    moment.journal.admit_here(waiting.call, moment.now_us);
                }
                if decided.is_low {
                    let ask = holding.start_request(moment.local, 0);
                    self.send(key, ask, None, moment);
                }
                if !S::is_admitted(&decided.outcome) {
                    self.denied(key, waiting, moment);
                }
            }
            LocalDecision::NeedsRedis if holding.is_requesting(now) => slot.waiting.push(waiting),
            LocalDecision::NeedsRedis if holding.is_worth_leasing(now) => {
                let ask = holding.start_request(moment.local, waiting.cost);
                self.send(key, ask, Some(waiting), moment);
            }
            LocalDecision::NeedsRedis => self.take_in_store(key, waiting, moment),
        }
    }

    fn take_in_store(&mut self, key: u32, waiting: Waiting, moment: &mut Moment<'_>) {
        self.post(key, What::Take(waiting), moment);
    }

    /// Tries the next part of a key for a denied call, or denies it if none is left.
    fn denied(&mut self, key: u32, waiting: Waiting, moment: &mut Moment<'_>) {
        let Some(parts_left) = waiting.parts_left.checked_sub(1) else {
            return moment.journal.deny(waiting.call);
        };
        let next = key / self.parts * self.parts + (key + 1) % self.parts;
        self.call(next, Waiting { tries: 0, parts_left, ..waiting }, moment);
    }

    fn send(&mut self, key: u32, ask: LeaseParams, asker: Option<Waiting>, moment: &mut Moment<'_>) {
        self.numbered += 1;
        let number = self.numbered;
        let version = self.slots.get(&key).map_or(0, |slot| slot.version);
        self.asked.insert(number, Asked { key, ask, asker, version });
        self.post(key, What::Lease { number, ask, is_leaving: false }, moment);
    }

    fn post(&self, key: u32, what: What, moment: &mut Moment<'_>) {
        let (from, limit, requested_at) = (self.me, self.limit_place, moment.local);
        moment.outbox.push(Request { from, limit, key, what, requested_at });
    }

    /// Handles a reply, unless it is too late.
    pub(super) fn answered(&mut self, reply: &Reply<S>, deadline_us: u64, moment: &mut Moment<'_>) {
        let timing = RequestTiming { requested_at: reply.request.requested_at, replied_at: moment.local };
        match reply.request.what {
            What::Take(waiting) => {
                if moment.local.as_micros() <= timing.requested_at.as_micros() + deadline_us {
                    self.took(waiting, timing, reply, moment);
                }
            }
            What::Lease { number, .. } => {
                if let Some(asked) = self.asked.remove(&number) {
                    self.leased(asked, timing, reply, moment);
                }
            }
            What::Reset => {}
        }
    }

    fn took(&mut self, waiting: Waiting, timing: RequestTiming, reply: &Reply<S>, moment: &mut Moment<'_>) {
        if S::is_admitted(&reply.grant.lease.outcome) {
            moment.journal.admit(waiting.call, reply.grant.now.as_micros());
            return;
        }
        if reply.request.limit == self.limit_place {
            let slot = self.slots.entry(reply.request.key).or_default();
            let holding = slot.known(&self.limit, self.pace);
            if holding.limit() == &self.limit {
                holding.remember_denial(waiting.cost, timing, &reply.grant);
            }
        }
        self.denied(reply.request.key, waiting, moment);
    }

    fn leased(&mut self, asked: Asked, timing: RequestTiming, reply: &Reply<S>, moment: &mut Moment<'_>) {
        let Some(slot) = self.slots.get_mut(&asked.key) else { return };
        let Some(holding) = &mut slot.holding else { return };
        let outcome = if slot.version == asked.version {
            holding.apply_grant(&asked.ask, timing, &reply.grant)
        } else {
            // The grant belongs to an old limit, or precedes a reset. It stays counted in the store until
            // it expires.
            holding.request_failed(&asked.ask, false);
            None
        };
        let mut again = std::mem::take(&mut slot.waiting);
        match (asked.asker, outcome) {
            (Some(asker), Some(outcome)) if S::is_admitted(&outcome) => {
                moment.journal.admit(asker.call, reply.grant.now.as_micros());
            }
            (Some(asker), Some(_)) => self.denied(asked.key, asker, moment),
            (Some(asker), None) => again.insert(0, asker),
            (None, _) => {}
        }
        for waiting in again {
            self.decide(asked.key, waiting, moment);
        }
    }

    /// Handles a request that timed out or could not be sent. The calls that waited for it stay undecided.
    pub(super) fn failed(&mut self, number: u64, sent: Sent) {
        let Some(asked) = self.asked.remove(&number) else { return };
        let Some(slot) = self.slots.get_mut(&asked.key) else { return };
        if let Some(holding) = &mut slot.holding {
            holding.request_failed(&asked.ask, sent == Sent::Not);
        }
        slot.waiting.clear();
    }

    /// Looks after keys that receive no calls. Returns whether there are any keys left.
    pub(super) fn look_around(&mut self, moment: &mut Moment<'_>) -> bool {
        let local = moment.local;
        let interval = local.as_micros() / self.interval_us;
        let mut owing = Vec::new();
        self.slots.retain(|key, slot| {
            match slot.holding.as_mut().map(|holding| holding.next_maintenance(local)) {
                Some(Maintenance::Remove) => !slot.waiting.is_empty(),
                Some(Maintenance::Return) => {
                    owing.push(*key);
                    true
                }
                Some(Maintenance::Nothing) => true,
                None => slot.tally.age(interval) <= 1,
            }
        });
        for key in owing {
            let holding = self.slots.get_mut(&key).and_then(|slot| slot.holding.as_mut());
            if let Some(ask) = holding.map(|holding| holding.start_return(local)) {
                self.send(key, ask, None, moment);
            }
        }
        !self.slots.is_empty()
    }

    /// Changes the limit. Each key applies it at its next call.
    pub(super) fn change_limit(&mut self, rule: Rule<'_, S>) {
        (self.limit_place, self.limit) = (rule.place, rule.limit.clone());
        (self.pace, self.interval_us) = (rule.pace, rule.interval_us);
    }

    /// Resets a key: drops its leases, and sends the reset to the store.
    pub(super) fn reset(&mut self, key: u32, moment: &mut Moment<'_>) {
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.version += 1;
            slot.holding.iter_mut().for_each(|holding| holding.forget());
        }
        self.post(key, What::Reset, moment);
    }

    /// Returns all leases to the store, then stops.
    pub(super) fn leave(&mut self, moment: &mut Moment<'_>) {
        let mut slots = std::mem::take(&mut self.slots);
        for (key, slot) in &mut slots {
            let Some(holding) = &mut slot.holding else { continue };
            holding.end_all();
            while holding.has_units_to_return() {
                let ask = holding.start_return(moment.local);
                self.post(*key, What::Lease { number: 0, ask, is_leaving: true }, moment);
            }
        }
        self.die();
    }

    /// Stops immediately: all leases are lost.
    pub(super) fn die(&mut self) {
        self.state = Running::Down;
        self.slots.clear();
        self.asked.clear();
    }

    /// Returns the number of units that the instance holds.
    pub(super) fn held(&self, local: Timestamp) -> u64 {
        self.slots.values().filter_map(|slot| slot.holding.as_ref()).map(|holding| holding.held(local)).sum()
    }
}
