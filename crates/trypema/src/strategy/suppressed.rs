//! Suppressed: a sliding window that denies a growing share of the calls above its soft limit, and all calls
//! above its hard limit.

#[cfg(feature = "_redis")]
mod lease;
mod limit;
#[cfg(feature = "_redis")]
mod wire;

pub use limit::SuppressedLimit;

use super::absolute::{OverLimit, RetryAt, refund_series};
use super::series::{JoinResult, NewUnits, Series, View, WindowAt};
use super::{Call, Refund, SharedState, Strategy};
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionTime, SuppressedDecision};
use crate::units::MAX_EXACT;

const SECOND_US: u64 = 1_000_000;

/// The fraction of the golden ratio in 32 bits. Adding it for each draw spreads the draws more evenly than
/// chance.
pub(super) const GOLDEN: u32 = 0x9E37_79B9;

/// The load-shedding sliding window; see the [module](super).
#[derive(Debug, Clone, Copy)]
pub struct Suppressed;

/// The suppressed strategy's state of a key.
#[derive(Debug, Clone, Default)]
pub struct SuppressedState {
    accepted: Series,
    /// The capacity under which the key was last called.
    capacity: u64,
    /// All calls, admitted or denied. `None` as long as it would equal `accepted`.
    observed: Option<Box<Series>>,
    /// The last draw.
    drawn: u32,
}

impl SuppressedState {
    fn observed(&self) -> &Series {
        self.observed.as_deref().unwrap_or(&self.accepted)
    }

    /// Returns the share of calls to admit after `cost` more units are observed at `window`.
    fn share(&self, window: WindowAt, soft: u64, cost: u64) -> f64 {
        let observed = self.observed();
        let view = observed.view(window);
        let last_second = if view.is_stepped_back {
            view.used
        } else {
            observed.units_within(WindowAt { window_us: SECOND_US, ..window })
        };
        let in_window = view.used.saturating_add(cost) as f64;
        let windows_worth =
            last_second.saturating_add(cost) as f64 * (window.window_us as f64 / SECOND_US as f64);
        (soft as f64 / in_window.max(windows_worth)).min(1.0)
    }

    /// Returns the last draw, or 0 if nothing counts any more. `accepted` is the view of the accepted units
    /// at `window`.
    fn drawn(&self, window: WindowAt, accepted: View) -> u32 {
        if accepted.used == 0 && self.observed().view(window).used == 0 { 0 } else { self.drawn }
    }

    /// Moves the observed units to now, if the clock went back by more than a window.
    fn repair_observed(&mut self, window: WindowAt) {
        if let Some(observed) = &mut self.observed {
            let view = observed.view(window);
            if view.is_stepped_back {
                observed.forget_expired(window, view);
            }
        }
    }
}

/// The outcome of the suppressed strategy.
#[derive(Debug, Clone, Copy)]
pub struct SuppressedOutcome {
    zone: Zone,
    soft: u64,
    remaining: u64,
    not_before: u64,
    used_after_wait: u64,
    recorded: u64,
    resets_at: u64,
    view: View,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Zone {
    /// The call is within the soft limit.
    Allowed,
    /// The call is between the limits, and a draw decided.
    Drawn { factor: f64, drawn: u32, is_admitted: bool },
    /// The call is above the hard limit.
    Rejected,
}

impl Zone {
    /// Returns the zone of the same call, denied.
    fn denied(self) -> Self {
        match self {
            Self::Drawn { factor, drawn, .. } => Self::Drawn { factor, drawn, is_admitted: false },
            Self::Allowed | Self::Rejected => Self::Rejected,
        }
    }
}

impl SuppressedOutcome {
    /// Returns the outcome of a call that joined the open bucket, within the soft limit.
    #[inline(always)]
    fn joined(limit: &SuppressedLimit, soft: u64, joined: JoinResult) -> Self {
        Self {
            zone: Zone::Allowed,
            soft,
            remaining: soft - joined.view.used,
            not_before: joined.recorded,
            used_after_wait: 0,
            recorded: joined.recorded,
            resets_at: joined.recorded + limit.window.window_us,
            view: joined.view,
        }
    }

    /// Returns the share of calls that is denied, if a draw decided.
    pub(crate) fn factor(&self) -> Option<f64> {
        match self.zone {
            Zone::Drawn { factor, .. } => Some(factor),
            Zone::Allowed | Zone::Rejected => None,
        }
    }

    /// Returns the units that still count after a denied caller has waited, if no other call is made. The
    /// wait is rounded up to whole milliseconds.
    pub(crate) fn used_after_wait(&self) -> u64 {
        self.used_after_wait
    }
}

impl SharedState<SuppressedLimit> for SuppressedState {
    fn adopt(&mut self, limit: &SuppressedLimit) {
        if !limit.window.is_of_live_state() {
            self.capacity = limit.window.capacity;
        }
    }

    fn condensed(&self, limit: &SuppressedLimit, now: Timestamp) -> Self {
        // The share of calls to admit also depends on the last second.
        let windows_us = [limit.window.window_us, SECOND_US];
        let condensed = |series: &Series| series.condensed(now.as_micros(), &windows_us);
        Self {
            accepted: condensed(&self.accepted),
            capacity: self.capacity,
            observed: self.observed.as_deref().map(|observed| Box::new(condensed(observed))),
            drawn: self.drawn,
        }
    }
}

impl Strategy for Suppressed {
    const COUNTS_DENIALS: bool = true;
    const COUNTS_DENIED_ELSEWHERE: bool = true;
    type Limit = SuppressedLimit;
    type State = SuppressedState;
    type Outcome = SuppressedOutcome;
    type Decision<'l> = SuppressedDecision;

    #[inline]
    fn decide(limit: &SuppressedLimit, state: &SuppressedState, call: Call) -> SuppressedOutcome {
        let window = limit.window.window_at(call);
        let view = state.accepted.view(window);
        let soft = sticky_soft(limit, state, view, window);
        let free = soft.saturating_sub(view.used);
        let zone = if call.needed <= free {
            Zone::Allowed
        } else {
            above_soft(limit, state, OverLimit { window, view, capacity: soft, cost: call.needed })
        };
        let is_admitted = is_admitted(zone);
        let recorded = state.accepted.recorded_at(window, view, limit.window.latest_stamp(call));
        let resets_at = if is_admitted && call.cost > 0 {
            recorded + limit.window.window_us
        } else {
            state.accepted.empty_at(window, view)
        };
        let denied = if is_admitted {
            RetryAt { not_before: window.now, used_after_wait: 0 }
        } else {
            until_admitted(limit, state, OverLimit { window, view, capacity: soft, cost: call.needed })
        };
        SuppressedOutcome {
            zone,
            soft,
            remaining: if is_admitted { free.saturating_sub(call.cost) } else { free },
            not_before: denied.not_before,
            used_after_wait: denied.used_after_wait,
            recorded,
            resets_at,
            view,
        }
    }

    #[inline(always)]
    fn take(
        limit: &SuppressedLimit,
        state: &mut SuppressedState,
        now: Timestamp,
        cost: u64,
    ) -> SuppressedOutcome {
        let call = Call::new(now, cost);
        if state.observed.is_none() {
            let is_live = limit.window.is_sticky && state.accepted.total() > 0;
            let soft = if is_live { state.capacity } else { limit.window.capacity };
            let (window, new_units) = (limit.window.window_at(call), limit.window.new_units(call));
            if let Some(joined) = state.accepted.join(window, new_units, soft) {
                state.capacity = soft;
                return SuppressedOutcome::joined(limit, soft, joined);
            }
        }
        let outcome = Self::decide(limit, state, call);
        Self::commit(limit, state, call, &outcome);
        outcome
    }

    #[inline]
    fn is_admitted(outcome: &SuppressedOutcome) -> bool {
        is_admitted(outcome.zone)
    }

    #[inline]
    fn commit(limit: &SuppressedLimit, state: &mut SuppressedState, call: Call, outcome: &SuppressedOutcome) {
        let window = limit.window.window_at(call);
        if call.cost == 0 {
            if outcome.view.is_stepped_back {
                state.accepted.forget_expired(window, outcome.view);
            }
            state.repair_observed(window);
            return;
        }
        state.capacity = outcome.soft;
        if let Zone::Drawn { drawn, .. } = outcome.zone {
            state.drawn = drawn;
        } else {
            state.drawn = state.drawn(window, outcome.view);
        }
        let is_admitted = is_admitted(outcome.zone);
        if !is_admitted && state.observed.is_none() {
            state.observed = Some(Box::new(state.accepted.clone()));
        }
        if is_admitted {
            let units = call.units_to_record(outcome.view.used, MAX_EXACT);
            state.accepted.record(window, outcome.view, NewUnits { units, ..limit.window.new_units(call) });
        } else if outcome.view.is_stepped_back {
            state.accepted.forget_expired(window, outcome.view);
        }
        if let Some(observed) = &mut state.observed {
            let view = observed.view(window);
            let units = call.cost.min(MAX_EXACT.saturating_sub(view.used));
            observed.record(window, view, NewUnits { units, ..limit.window.new_units(call) });
        }
    }

    fn record_denied_elsewhere(
        limit: &SuppressedLimit,
        state: &mut SuppressedState,
        call: Call,
        outcome: &SuppressedOutcome,
    ) {
        if call.cost > 0 {
            Self::commit(limit, state, call, &SuppressedOutcome { zone: outcome.zone.denied(), ..*outcome });
        }
    }

    fn recorded_at(_: &SuppressedLimit, outcome: &SuppressedOutcome, _: Call) -> Timestamp {
        Timestamp::derived(outcome.recorded)
    }

    fn recorded_units(_: &SuppressedLimit, outcome: &SuppressedOutcome, call: Call) -> u64 {
        call.units_to_record(outcome.view.used, MAX_EXACT)
    }

    fn available(limit: &SuppressedLimit, state: &SuppressedState, call: Call) -> u64 {
        let window = limit.window.window_at(call);
        let view = state.accepted.view(window);
        sticky_soft(limit, state, view, window).saturating_sub(view.used).min(call.cost)
    }

    fn refund(limit: &SuppressedLimit, state: &mut SuppressedState, refund: Refund) -> u64 {
        let window = limit.window.window_at(Call::new(refund.now, 0));
        if state.observed.is_none() {
            // A refunded call was still observed, so the two series differ from now on.
            state.observed = Some(Box::new(state.accepted.clone()));
        }
        state.repair_observed(window);
        refund_series(&mut state.accepted, window, limit.window.group_us, refund)
    }

    fn retention_us(limit: &SuppressedLimit) -> u64 {
        limit.window.window_us
    }

    fn fresh_from(state: &SuppressedState) -> Timestamp {
        Timestamp::derived(state.accepted.fresh_from().max(state.observed().fresh_from()))
    }

    #[inline(always)]
    fn decision(
        _: &SuppressedLimit,
        outcome: SuppressedOutcome,
        decided_at: DecisionTime,
    ) -> SuppressedDecision {
        let core = Decision {
            is_allowed: is_admitted(outcome.zone),
            attempts: None,
            limit: outcome.soft,
            remaining: outcome.remaining,
            not_before: Timestamp::derived(outcome.not_before),
            resets_at: Timestamp::derived(outcome.resets_at),
            decided_at,
        };
        SuppressedDecision { core, factor: outcome.factor() }
    }

    #[inline]
    fn core(decision: &SuppressedDecision) -> Decision {
        decision.core
    }
}

fn is_admitted(zone: Zone) -> bool {
    matches!(zone, Zone::Allowed | Zone::Drawn { is_admitted: true, .. })
}

/// Returns the soft limit in force: the stored one if this limit is sticky and the state still counts
/// something.
fn sticky_soft(limit: &SuppressedLimit, state: &SuppressedState, view: View, window: WindowAt) -> u64 {
    let is_live = view.used > 0 || state.observed.as_ref().is_some_and(|seen| seen.view(window).used > 0);
    if limit.window.is_sticky && is_live { state.capacity } else { limit.window.capacity }
}

/// Returns the earliest time at which a denied call can be admitted.
///
/// A cost within the soft limit waits until it fits under the soft limit. A cost between the limits can only
/// be admitted by a draw: it waits until it fits under the hard limit, and at least for one group. A cost
/// above the hard limit never fits.
fn until_admitted(limit: &SuppressedLimit, state: &SuppressedState, above_soft: OverLimit) -> RetryAt {
    let OverLimit { window, view, capacity: soft, cost } = above_soft;
    let hard = limit.factor.hard_capacity(soft);
    if cost <= soft || cost > hard {
        return RetryAt::until_fits(&state.accepted, above_soft);
    }
    let again = window.now + limit.window.group_us;
    if view.used + cost <= hard {
        return RetryAt { not_before: again, used_after_wait: view.used };
    }
    let denied = RetryAt::until_fits(&state.accepted, OverLimit { capacity: hard, ..above_soft });
    RetryAt { not_before: denied.not_before.max(again), ..denied }
}

fn above_soft(limit: &SuppressedLimit, state: &SuppressedState, above_soft: OverLimit) -> Zone {
    let OverLimit { window, view, capacity: soft, cost } = above_soft;
    let hard = limit.factor.hard_capacity(soft);
    if cost > hard.saturating_sub(view.used) {
        return Zone::Rejected;
    }
    let share = state.share(window, soft, cost);
    let threshold = (share * (u64::from(u32::MAX) + 1) as f64) as u64;
    let drawn = state.drawn(window, view).wrapping_add(GOLDEN);
    Zone::Drawn { factor: 1.0 - share, drawn, is_admitted: u64::from(drawn) < threshold }
}
