//! Remembered denials.

use super::{Holding, RequestTiming};
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionTime};
use crate::redis::LeaseResponse;
use crate::strategy::Leasable;

/// A denial that applies for a while, to this cost and larger ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct RememberedDenial<O> {
    pub(super) cost: u64,
    pub(super) outcome: O,
    pub(super) ahead_us: i64,
    pub(super) until: u64,
}

impl<S: Leasable> Holding<S> {
    /// Remembers a denial until its wait is over, or for an interval if that is shorter: other instances
    /// may return units.
    pub fn remember_denial(&mut self, cost: u64, timing: RequestTiming, grant: &LeaseResponse<S::Outcome>) {
        self.remember_denial_for(cost, timing, grant, 0);
    }

    /// Same as [`remember_denial`](Self::remember_denial), for at least `at_least_us`.
    pub(super) fn remember_denial_for(
        &mut self,
        cost: u64,
        timing: RequestTiming,
        grant: &LeaseResponse<S::Outcome>,
        at_least_us: u64,
    ) {
        let outcome = grant.lease.outcome.clone();
        let decision = S::core(&S::decision(&self.limit, outcome.clone(), DecisionTime::exactly(grant.now)));
        let Some(wait_us) = decision.retry_after_us() else { return };
        let lasts_us = wait_us.clamp(at_least_us, self.pace.interval_us);
        let until = timing.replied_at.as_micros() + lasts_us;
        // If the denial is remembered for longer than its wait, callers are given the longer wait.
        let ahead_us = timing.ahead_us(grant.now) - lasts_us.saturating_sub(wait_us) as i64;
        self.known_since = timing.requested_at.as_micros();
        self.denial = Some(RememberedDenial { cost, outcome, ahead_us, until });
        self.find_next_end();
    }

    /// Remembers a denial by an all-or-nothing request, of which only the decision is known.
    pub fn remember_group_denial(&mut self, cost: u64, replied_at: Timestamp, decision: Decision) {
        let (Some(wait_us), Some(now)) = (decision.retry_after_us(), decision.decided_at.moment()) else {
            return;
        };
        let ahead_us = now.as_micros() as i64 - replied_at.as_micros() as i64;
        let until = replied_at.as_micros() + wait_us.min(self.pace.interval_us);
        self.known_since = replied_at.as_micros();
        self.group_denial = Some(RememberedDenial { cost, outcome: decision, ahead_us, until });
        self.find_next_end();
    }

    /// Forgets the remembered denials, because units were refunded.
    #[cfg(feature = "rules")]
    pub fn forget_denials(&mut self) {
        (self.denial, self.group_denial) = (None, None);
        self.find_next_end();
    }

    /// Returns the decision on a call that a remembered denial applies to.
    pub fn denial(&mut self, now: Timestamp, cost: u64) -> Option<Decision> {
        self.end_until(now);
        if cost <= self.leases.left() {
            return None;
        }
        let shared_now = |ahead_us| Timestamp::derived(now.as_micros().saturating_add_signed(ahead_us));
        let known = self.denial.as_ref().filter(|denial| self.applies_to(denial, cost)).map(|denial| {
            let decided_at = DecisionTime::exactly(shared_now(denial.ahead_us));
            S::core(&S::decision(&self.limit, denial.outcome.clone(), decided_at))
        });
        let by_group = self
            .group_denial
            .as_ref()
            .filter(|group_denial| (group_denial.cost..=group_denial.outcome.limit()).contains(&cost));
        known.or(by_group.map(|group_denial| Decision {
            decided_at: group_denial.outcome.decided_at.moved_to(shared_now(group_denial.ahead_us)),
            ..group_denial.outcome
        }))
    }

    /// Whether a denial applies to `cost`. It does not apply to a smaller cost, nor to a cost that can
    /// never fit, which has no `retry_after`.
    pub(super) fn applies_to(&self, denial: &RememberedDenial<S::Outcome>, cost: u64) -> bool {
        let most = S::core(&S::decision(
            &self.limit,
            denial.outcome.clone(),
            DecisionTime::exactly(Timestamp::default()),
        ))
        .limit();
        (denial.cost..=most).contains(&cost)
    }

    /// Removes a call from the calls to report.
    pub fn unreport(&mut self, cost: u64) {
        if S::reports_local_calls(&self.limit) {
            self.unreported = self.unreported.saturating_sub(cost);
        }
    }

    /// Adds a call that was not decided here to the calls to report.
    pub fn report_denied(&mut self, cost: u64) {
        if S::reports_local_calls(&self.limit) {
            self.unreported = self.unreported.saturating_add(cost);
        }
    }
}
