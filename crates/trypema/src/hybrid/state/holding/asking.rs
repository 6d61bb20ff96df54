//! Asking the shared count for a lease, and what its answer means.

use super::{Grant, Holding, Told, Trip};
use crate::clock::Timestamp;
use crate::hybrid::state::leases::Lease;
use crate::strategy::{Back, Leasable, LeaseAsk, Leased, Turn};

/// With less than this an answer would hardly arrive before the lease is over.
const SHORTEST_INTERVAL_US: u64 = 1_000;

/// An answer that takes longer is not waited for: whoever asked may be kept from looking at it.
const PATIENCE_US: u64 = 250_000;

impl<S: Leasable> Holding<S> {
    /// Whether it is called often enough for a lease.
    pub fn is_worth_leasing(&self, now: Timestamp) -> bool {
        let is_long_enough = S::IS_LEASED && self.pace.interval_us >= SHORTEST_INTERVAL_US;
        is_long_enough && self.demand.is_warm(now.as_micros(), self.pace.interval_us)
    }

    /// Whether somebody is asking the shared count, and may soon be answered.
    pub fn is_asking(&self, now: Timestamp) -> bool {
        self.asking_since.is_some_and(|since| now.as_micros() < since + PATIENCE_US)
    }

    /// What to ask for, when somebody waits for `need`. What is to be given back goes with it.
    pub fn ask(&mut self, now: Timestamp, need: u64) -> LeaseAsk {
        let now = now.as_micros();
        self.asking_since = Some(now);
        let expected = self.demand.expected(now, self.pace.interval_us);
        let still_held = self.leases.left_at(now + self.pace.interval_us / 2);
        let want = if self.is_worth_leasing(Timestamp::derived(now)) {
            expected.saturating_sub(still_held)
        } else {
            0
        };
        let ask = LeaseAsk { need, want, ..self.settling() };
        // The call that needs it is seen by the shared count with it.
        if S::is_counting_denied(&self.limit) {
            LeaseAsk { seen: ask.seen.saturating_add(need), ..ask }
        } else {
            ask
        }
    }

    /// What to ask for only to give something back, or to tell what was seen.
    pub fn settle(&mut self, now: Timestamp) -> LeaseAsk {
        self.asking_since = Some(now.as_micros());
        self.settling()
    }

    /// What was asked for here and the shared count was not told, to be told now.
    pub fn take_unreported(&mut self) -> u64 {
        std::mem::take(&mut self.unreported)
    }

    fn settling(&mut self) -> LeaseAsk {
        let back = self.leases.next_back().unwrap_or_default();
        let seen = self.take_unreported();
        LeaseAsk { need: 0, want: 0, length_us: self.pace.length_us, back, seen }
    }

    /// Notes what was granted; returns what that means for the call that needed it, if it is decided.
    pub fn granted(&mut self, ask: &LeaseAsk, trip: Trip, grant: &Grant<S::Outcome>) -> Option<S::Outcome> {
        self.asking_since = None;
        self.known_since = trip.asked_at.as_micros();
        self.leases.forget_before_reset(grant.resets);
        if ask.need == 0 && ask.want == 0 {
            return None;
        }
        let Leased { units, recorded, outcome } = grant.leased.clone();
        let is_drawing = S::is_drawing(&outcome);
        if units == 0 && !is_drawing {
            // Of a key that is asked for all the time, the next look can wait for more than one unit.
            self.remember(ask.need.max(1), trip, grant, self.pace.interval_us / 4);
            return (ask.need > 0).then_some(outcome);
        }
        if is_drawing {
            // What was granted before is not drawn by the same share.
            self.leases.end_all();
        }
        let is_needed = ask.need > 0 && !is_drawing;
        let (held, needed) = (self.leases.left(), if is_needed { ask.need } else { 0 });
        let lasts_us = recorded.as_micros().saturating_sub(grant.now.as_micros());
        let usable_us = if S::IS_RETURNED_EARLY { lasts_us - lasts_us / 5 } else { lasts_us };
        let ends_at = trip.asked_at.as_micros() + self.pace.certain_us(usable_us);
        let left = Back { units: units.saturating_sub(needed), recorded, resets: grant.resets };
        if ends_at > trip.answered_at.as_micros() {
            self.leases.add(Lease { left, ends_at });
        } else {
            self.leases.give_back(left);
        }
        let draws_until =
            is_drawing.then(|| trip.asked_at.as_micros() + self.pace.certain_us(self.pace.length_us));
        let told = outcome.clone();
        self.told =
            Some(Told { outcome: told, granted: units, ahead_us: trip.ahead_us(grant.now), draws_until });
        self.denial = None;
        self.low = self.leases.left() / 4;
        // A lease that ends with its window is followed by one of the next window, which is not there yet.
        let is_cut_short = recorded < ask.end(grant.now, units) && !is_drawing;
        let before_end = match is_cut_short {
            true => u64::MAX,
            false => draws_until.unwrap_or(ends_at).saturating_sub(self.pace.interval_us / 4),
        };
        // The next reply also tells of a reset, so it is asked for within an interval.
        self.refill_at = before_end.min(trip.asked_at.as_micros() + self.pace.interval_us);
        self.find_next_end();
        if is_drawing && ask.need > 0 {
            return self.draw(ask.need);
        }
        is_needed.then(|| {
            let turn = Turn { cost: needed, left: held + units, granted: units, drawn: &mut self.drawn };
            S::of_lease(&self.limit, &outcome, turn)
        })
    }

    /// Draws for the call that needed the lease.
    fn draw(&mut self, cost: u64) -> Option<S::Outcome> {
        let told = self.told.as_ref()?;
        let turn = Turn { cost, left: self.leases.left(), granted: told.granted, drawn: &mut self.drawn };
        let outcome = S::spend(&self.limit, &told.outcome, turn)?;
        if S::is_admitted(&outcome) {
            self.leases.spend(cost, |_| {});
        }
        Some(outcome)
    }

    /// Notes that the shared count gave no answer. What was not sent is asked again; what may have been is not, and
    /// then the units stay counted until they leave by themselves.
    pub fn failed(&mut self, ask: &LeaseAsk, is_unspent: bool) {
        self.asking_since = None;
        if is_unspent {
            self.leases.give_back(ask.back);
            self.unreported = self.unreported.saturating_add(ask.seen.saturating_sub(ask.need));
        }
    }
}
