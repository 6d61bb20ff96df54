//! Requests a lease from Redis, and applies the reply.

use super::{Holding, LastGrant, RequestTiming};
use crate::clock::Timestamp;
use crate::hybrid::state::leases::Lease;
use crate::redis::LeaseResponse;
use crate::strategy::{Leasable, LeaseGrant, LeaseParams, LeasedUnits, LocalCall};

/// The shortest interval for which leases are requested. With a shorter one, the reply would hardly arrive
/// before the lease ends.
const SHORTEST_INTERVAL_US: u64 = 1_000;

/// The time after which a request no longer keeps others from sending one: its caller may not be polled any
/// more.
const REPLY_TIMEOUT_US: u64 = 250_000;

impl<S: Leasable> Holding<S> {
    /// Whether the key is busy enough for a lease.
    pub fn is_worth_leasing(&self, now: Timestamp) -> bool {
        let is_long_enough = S::IS_LEASED && self.pace.interval_us >= SHORTEST_INTERVAL_US;
        is_long_enough && self.demand.is_warm(now.as_micros(), self.pace.interval_us)
    }

    /// Whether a lease request is in progress, and its reply can be expected soon.
    pub fn is_requesting(&self, now: Timestamp) -> bool {
        self.requested_at.is_some_and(|since| now.as_micros() < since + REPLY_TIMEOUT_US)
    }

    /// Returns the lease to request, for a call that waits for `need` units. The request also carries units
    /// to return and calls to report.
    pub fn start_request(&mut self, now: Timestamp, need: u64) -> LeaseParams {
        let now = now.as_micros();
        self.requested_at = Some(now);
        let expected = self.demand.expected(now, self.pace.interval_us);
        let still_held = self.leases.left_at(now + self.pace.interval_us / 2);
        let want = if self.is_worth_leasing(Timestamp::derived(now)) {
            expected.saturating_sub(still_held)
        } else {
            0
        };
        let params = LeaseParams { need, want, ..self.return_params() };
        // The request also reports the call that needs it.
        if S::reports_local_calls(&self.limit) {
            LeaseParams { reported: params.reported.saturating_add(need), ..params }
        } else {
            params
        }
    }

    /// Returns a request that only returns units and reports calls.
    pub fn start_return(&mut self, now: Timestamp) -> LeaseParams {
        self.requested_at = Some(now.as_micros());
        self.return_params()
    }

    /// Returns the units to report to Redis, and sets them to 0.
    pub fn take_unreported(&mut self) -> u64 {
        std::mem::take(&mut self.unreported)
    }

    fn return_params(&mut self) -> LeaseParams {
        let unspent = self.leases.next_to_return().unwrap_or_default();
        let reported = self.take_unreported();
        LeaseParams { need: 0, want: 0, length_us: self.pace.length_us, unspent, reported }
    }

    /// Applies a grant. Returns the outcome of the call that needed it, if the grant decides it.
    pub fn apply_grant(
        &mut self,
        params: &LeaseParams,
        timing: RequestTiming,
        grant: &LeaseResponse<S::Outcome>,
    ) -> Option<S::Outcome> {
        self.requested_at = None;
        self.known_since = timing.requested_at.as_micros();
        self.leases.forget_before_reset(grant.resets);
        if params.need == 0 && params.want == 0 {
            return None;
        }
        let LeaseGrant { units, recorded, origin, outcome } = grant.lease.clone();
        let allows_local_draws = S::allows_local_draws(&outcome);
        if units == 0 && !allows_local_draws {
            // Deny for at least a quarter of an interval, so that a busy key finds more than one unit at
            // the next request.
            self.remember_denial_for(params.need.max(1), timing, grant, self.pace.interval_us / 4);
            return (params.need > 0).then_some(outcome);
        }
        if allows_local_draws {
            // Earlier leases were granted without this share, or with another one.
            self.leases.end_all();
        }
        let is_needed = params.need > 0 && !allows_local_draws;
        let (held, needed) = (self.leases.left(), if is_needed { params.need } else { 0 });
        let lasts_us = recorded.as_micros().saturating_sub(grant.now.as_micros());
        let usable_us = if S::REFUND_BEFORE_END { lasts_us - lasts_us / 5 } else { lasts_us };
        let ends_at = timing.requested_at.as_micros() + self.pace.certain_us(usable_us);
        let units_left = units.saturating_sub(needed);
        let left = LeasedUnits { units: units_left, recorded, origin, resets: grant.resets };
        if ends_at > timing.replied_at.as_micros() {
            self.leases.add(Lease { left, ends_at });
        } else {
            self.leases.return_later(left);
        }
        let draws_until = allows_local_draws
            .then(|| timing.requested_at.as_micros() + self.pace.certain_us(self.pace.length_us));
        let last_grant = outcome.clone();
        self.last_grant = Some(LastGrant {
            outcome: last_grant,
            granted: units,
            ahead_us: timing.ahead_us(grant.now),
            draws_until,
        });
        self.denial = None;
        self.low_mark = self.leases.left() / 4;
        // The end of an aligned window cut this lease short. The next lease needs the next window, which
        // has not begun.
        let is_cut_short = recorded < params.end(grant.now, units) && !allows_local_draws;
        let before_end = match is_cut_short {
            true => u64::MAX,
            false => draws_until.unwrap_or(ends_at).saturating_sub(self.pace.interval_us / 4),
        };
        // Request again within an interval, because the reply also reports resets.
        self.refill_at = before_end.min(timing.requested_at.as_micros() + self.pace.interval_us);
        self.find_next_end();
        if allows_local_draws && params.need > 0 {
            return self.draw(params.need);
        }
        is_needed.then(|| {
            let call = LocalCall { cost: needed, left: held + units, granted: units, drawn: &mut self.drawn };
            S::leased_outcome(&self.limit, &outcome, call)
        })
    }

    /// Decides the call that needed the lease by drawing.
    fn draw(&mut self, cost: u64) -> Option<S::Outcome> {
        let last_grant = self.last_grant.as_ref()?;
        let call =
            LocalCall { cost, left: self.leases.left(), granted: last_grant.granted, drawn: &mut self.drawn };
        let outcome = S::spend(&self.limit, &last_grant.outcome, call)?;
        if S::is_admitted(&outcome) {
            self.leases.spend(cost, |_| {});
        }
        Some(outcome)
    }

    /// Records that a request got no reply. If it was certainly not applied, the next request repeats its
    /// returned units and reports. Otherwise it is not repeated, and the units stay counted until they
    /// leave the window.
    pub fn request_failed(&mut self, params: &LeaseParams, is_unspent: bool) {
        self.requested_at = None;
        if is_unspent {
            self.leases.return_later(params.unspent);
            self.unreported = self.unreported.saturating_add(params.reported.saturating_sub(params.need));
        }
    }
}
