//! The state of one key in one instance. Pure like a strategy: it reads no clock and does not call Redis.

mod denial;
mod outcome;
mod requests;

use denial::RememberedDenial;
pub use outcome::{LeaseDecision, LocalDecision, Maintenance, RequestTiming};

use super::demand::Demand;
use super::leases::Leases;
use super::pace::Pace;
use crate::clock::Timestamp;
use crate::decision::Decision;
use crate::strategy::{Call, Leasable, LeasedUnits, LocalCall};

/// The leases, denials and demand of one key in one instance.
#[derive(Debug, Clone)]
pub struct Holding<S: Leasable> {
    limit: S::Limit,
    /// The largest cost that can ever fit.
    capacity: u64,
    pace: Pace,
    leases: Leases,
    last_grant: Option<LastGrant<S::Outcome>>,
    denial: Option<RememberedDenial<S::Outcome>>,
    /// A denial by an all-or-nothing request, of which only the decision is known.
    group_denial: Option<RememberedDenial<Decision>>,
    demand: Demand,
    /// The earliest time at which a lease ends, a denial ends, or draws with the current share end.
    next_end: u64,
    /// The time of the last information from Redis.
    known_since: u64,
    /// More units are requested when at most `low_mark` are left, or from `refill_at` on.
    low_mark: u64,
    refill_at: u64,
    /// The time at which the lease request in progress was made.
    requested_at: Option<u64>,
    /// Units of calls that were decided here and have to be reported to Redis, because the strategy counts
    /// denied calls too.
    unreported: u64,
    drawn: u32,
}

/// The last grant.
#[derive(Debug, Clone, Copy)]
struct LastGrant<O> {
    outcome: O,
    granted: u64,
    /// A lower bound for the lead of Redis's clock over the instance's.
    ahead_us: i64,
    /// The time until which calls are decided by drawing with the share in `outcome`.
    draws_until: Option<u64>,
}

impl<S: Leasable> Holding<S> {
    /// Returns a holding without leases.
    pub fn new(limit: &S::Limit, pace: Pace) -> Self {
        Self {
            limit: limit.clone(),
            capacity: capacity_of::<S>(limit),
            pace,
            leases: Leases::default(),
            last_grant: None,
            denial: None,
            group_denial: None,
            demand: Demand::default(),
            next_end: u64::MAX,
            known_since: 0,
            low_mark: 0,
            refill_at: u64::MAX,
            requested_at: None,
            unreported: 0,
            drawn: 0,
        }
    }

    /// Returns the limit under which all held units were granted.
    pub fn limit(&self) -> &S::Limit {
        &self.limit
    }

    /// Switches to another limit. Units granted under the old limit are to be returned. If the window
    /// differs, they are dropped instead: a refund would remove units of others from the new window.
    pub fn change_limit(&mut self, limit: &S::Limit, pace: Pace) {
        if S::retention_us(limit) != S::retention_us(&self.limit) {
            self.leases.forget();
        }
        self.end_all();
        (self.limit, self.pace, self.demand) = (limit.clone(), pace, Demand::default());
        self.capacity = capacity_of::<S>(limit);
    }

    /// Sets the demand to that of a key that has just been found to be busy.
    pub fn warm(&mut self, now: Timestamp) {
        self.demand = Demand::warm(now.as_micros());
    }

    /// Counts a call in the demand. A call is counted once, even if it is tried several times.
    #[inline]
    pub fn count(&mut self, now: Timestamp, cost: u64) {
        // A cost that can never fit is no reason to request more units.
        let cost = if cost > self.capacity { 0 } else { cost };
        self.demand.count(now.as_micros(), self.pace.interval_us, cost);
    }

    /// Counts a call. Decides it if that is possible here, and spends its cost.
    pub fn take(&mut self, now: Timestamp, cost: u64) -> LocalDecision<S::Outcome> {
        self.count(now, cost);
        self.take_with(now, cost, |_| {})
    }

    /// Same as [`Holding::take`], for a call that is already counted. Passes each spent part to `on_spent`,
    /// with the time at which Redis recorded it.
    #[inline]
    pub fn take_with(
        &mut self,
        now: Timestamp,
        cost: u64,
        on_spent: impl FnMut(LeasedUnits),
    ) -> LocalDecision<S::Outcome> {
        self.end_until(now);
        let taken = self.decide(now, cost);
        if let LocalDecision::Decided(decided) = &taken {
            if S::reports_local_calls(&self.limit) {
                self.unreported = self.unreported.saturating_add(cost);
            }
            if S::is_admitted(&decided.outcome) {
                self.leases.spend(cost, on_spent);
            }
        }
        self.with_is_low(taken, now)
    }

    /// Returns the result that [`Holding::take`] would return. Spends nothing.
    pub fn peek(&mut self, now: Timestamp, cost: u64) -> LocalDecision<S::Outcome> {
        self.end_until(now);
        let drawn = self.drawn;
        let taken = self.decide(now, cost);
        self.drawn = drawn;
        taken
    }

    #[inline]
    fn decide(&mut self, now: Timestamp, cost: u64) -> LocalDecision<S::Outcome> {
        let decided = |outcome, ahead_us| {
            let now = Timestamp::derived(now.as_micros().saturating_add_signed(ahead_us));
            LocalDecision::Decided(LeaseDecision { outcome, now, is_low: false })
        };
        if let Some(denial) = &self.denial
            && self.applies_to(denial, cost)
            && cost > self.leases.left()
        {
            return decided(denial.outcome.clone(), denial.ahead_us);
        }
        let Some(last_grant) = &self.last_grant else { return LocalDecision::NeedsRedis };
        if self.leases.left() == 0 && last_grant.draws_until.is_none() {
            return LocalDecision::NeedsRedis;
        }
        let call =
            LocalCall { cost, left: self.leases.left(), granted: last_grant.granted, drawn: &mut self.drawn };
        match S::spend(&self.limit, &last_grant.outcome, call) {
            Some(outcome) => decided(outcome, last_grant.ahead_us),
            None => LocalDecision::NeedsRedis,
        }
    }

    /// Sets `is_low` in a decision: whether more units are to be requested.
    #[inline]
    fn with_is_low(&self, taken: LocalDecision<S::Outcome>, now: Timestamp) -> LocalDecision<S::Outcome> {
        let is_low = !self.is_requesting(now)
            && self.denial.as_ref().is_none_or(|denial| denial.cost > 1)
            && (self.leases.left() <= self.low_mark
                || now.as_micros() >= self.refill_at
                || S::REFUND_BEFORE_END && self.leases.has_units_to_return());
        match taken {
            LocalDecision::Decided(decided) => LocalDecision::Decided(LeaseDecision { is_low, ..decided }),
            other => other,
        }
    }

    /// Whether units from a lease still count in Redis.
    pub fn is_counted(&self, units: &LeasedUnits, now: Timestamp) -> bool {
        let ahead_us = self.last_grant.as_ref().map_or(0, |last_grant| last_grant.ahead_us);
        let shared_now = Timestamp::derived(now.as_micros().saturating_add_signed(ahead_us));
        units.is_counted(shared_now, S::retention_us(&self.limit))
    }

    /// Returns spent units to their lease.
    pub fn restore(&mut self, units: LeasedUnits) {
        self.leases.restore(units);
        self.find_next_end();
    }

    /// Ends all leases, whose units are to be returned. Drops the remembered denials and the share for
    /// draws.
    pub fn end_all(&mut self) {
        self.leases.end_all();
        (self.last_grant, self.denial, self.group_denial) = (None, None, None);
        self.find_next_end();
    }

    /// Drops everything, because the key was reset in Redis.
    pub fn forget(&mut self) {
        self.leases.forget();
        self.unreported = 0;
        self.end_all();
    }

    /// Returns the number of units held at `now`.
    pub fn held(&self, now: Timestamp) -> u64 {
        self.leases.left_at(now.as_micros())
    }

    /// Whether units are to be returned to Redis.
    pub fn has_units_to_return(&self) -> bool {
        self.leases.has_units_to_return()
    }

    /// Whether calls that were decided here have to be reported to Redis.
    pub fn is_unreported(&self) -> bool {
        self.unreported > 0
    }

    /// Whether the key can be removed: it is idle, holds nothing, and has nothing to return or report.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        let is_idle = self.demand.is_idle(now.as_micros(), self.pace.interval_us);
        let is_settled = !self.has_units_to_return() && !self.is_unreported();
        is_idle && is_settled && !self.is_requesting(now) && self.held(now) == 0
    }

    /// Ends the leases, denials and draws that are over. Returns the maintenance that the key needs.
    pub fn next_maintenance(&mut self, now: Timestamp) -> Maintenance {
        self.end_until(now);
        let is_idle = self.demand.is_idle(now.as_micros(), self.pace.interval_us);
        if self.is_requesting(now) {
            Maintenance::Nothing
        } else if self.unreported > 0 && !S::IS_LEASED {
            Maintenance::Return
        } else if self.leases.has_several_to_return()
            || !self.is_worth_leasing(now) && (self.leases.has_units_to_return() || self.unreported > 0)
        {
            // A busy key returns its units with the next lease request.
            Maintenance::Return
        } else if is_idle && self.leases.is_empty() && self.denial.is_none() && self.group_denial.is_none() {
            Maintenance::Remove
        } else {
            Maintenance::Nothing
        }
    }

    /// Whether the clock has gone back by more than an interval, which is more than a delayed caller
    /// explains. Then leases and remembered denials are no longer valid.
    #[inline]
    fn is_stepped_back(&self, now: Timestamp) -> bool {
        now.as_micros() + self.pace.interval_us < self.known_since
    }

    /// Ends all leases, denials and draws that are over at `now`.
    #[inline]
    fn end_until(&mut self, now: Timestamp) {
        if self.is_stepped_back(now) {
            self.known_since = 0;
            self.end_all();
        } else if now.as_micros() >= self.next_end {
            self.end_some(now.as_micros());
        }
    }

    fn end_some(&mut self, now: u64) {
        self.leases.end_until(now);
        if self.denial.as_ref().is_some_and(|denial| denial.until <= now) {
            self.denial = None;
        }
        if self.group_denial.as_ref().is_some_and(|group_denial| group_denial.until <= now) {
            self.group_denial = None;
        }
        if self
            .last_grant
            .as_ref()
            .and_then(|last_grant| last_grant.draws_until)
            .is_some_and(|until| until <= now)
        {
            self.last_grant = None;
            // Units that were granted with the old share end with it.
            self.leases.end_all();
        }
        self.find_next_end();
    }

    fn find_next_end(&mut self) {
        let draws_until = self.last_grant.as_ref().and_then(|last_grant| last_grant.draws_until);
        let denied_until = self.denial.as_ref().map(|denial| denial.until);
        let group_denied_until = self.group_denial.as_ref().map(|group_denial| group_denial.until);
        let ends = [self.leases.first_end(), draws_until, denied_until, group_denied_until];
        self.next_end = ends.into_iter().flatten().min().unwrap_or(u64::MAX);
    }
}

/// Returns the largest cost that can ever fit.
fn capacity_of<S: Leasable>(limit: &S::Limit) -> u64 {
    S::available(limit, &S::State::default(), Call::new(Timestamp::default(), u64::MAX))
}
