//! Leases of a suppressed limit. Below the soft limit, they work as for any other strategy. Above it, the
//! shared count computes the share of calls to admit and grants that share of the wanted units. The instance
//! then decides each call with its own draw.

use super::{GOLDEN, Suppressed, SuppressedLimit, SuppressedOutcome, SuppressedState, Zone};
use crate::clock::Timestamp;
use crate::strategy::absolute::refund_series;
use crate::strategy::lease::LeaseGrant;
use crate::strategy::series::{NewUnits, View};
use crate::strategy::{Call, Leasable, LeaseCall, LeaseParams, LocalCall, Refund, Strategy};
use crate::units::MAX_EXACT;

/// The number of different draws.
const DRAWS: f64 = (1_u64 << 32) as f64;

impl Leasable for Suppressed {
    fn window_us(limit: &SuppressedLimit) -> u64 {
        limit.window.window_us
    }

    fn lease(
        limit: &SuppressedLimit,
        state: &mut SuppressedState,
        call: LeaseCall<'_>,
    ) -> LeaseGrant<SuppressedOutcome> {
        let LeaseCall { now, params, instances } = call;
        apply_returns(limit, state, now, params);
        let call = Call::new(now, params.need.max(1));
        let mut outcome = Self::decide(limit, state, call);
        let free = outcome.soft.saturating_sub(outcome.view.used);
        let room = limit.factor.hard_capacity(outcome.soft).saturating_sub(outcome.view.used);
        let mut units = params.share_of(free, instances);
        if units > 0 {
            outcome.zone = Zone::Allowed;
        } else if call.cost > free && call.cost <= room {
            // The calls that the instance reported are observed already.
            let share = state.share(limit.window.window_at(call), outcome.soft, 0);
            state.drawn = state.drawn(limit.window.window_at(call), outcome.view).wrapping_add(GOLDEN);
            let drawn = (params.want as f64 * share + f64::from(state.drawn) / DRAWS) as u64;
            units = drawn.min((room / instances.max(1)).max(1));
            let is_admitted = units > 0;
            outcome.zone = Zone::Drawn { factor: 1.0 - share, drawn: state.drawn, is_admitted };
            outcome.remaining = free;
        }
        let stamp = params.end(now, units);
        record(limit, state, call.with_cost(units).with_stamp(stamp), &mut outcome);
        LeaseGrant {
            units,
            recorded: Timestamp::derived(outcome.recorded),
            origin: Self::origin(state),
            outcome,
        }
    }

    fn spend(
        limit: &SuppressedLimit,
        last_outcome: &SuppressedOutcome,
        call: LocalCall<'_>,
    ) -> Option<SuppressedOutcome> {
        let Zone::Drawn { factor, .. } = last_outcome.zone else {
            return (call.cost <= call.left).then(|| Self::leased_outcome(limit, last_outcome, call));
        };
        *call.drawn = call.drawn.wrapping_add(GOLDEN);
        let is_drawn = f64::from(*call.drawn) < (1.0 - factor) * DRAWS;
        let is_admitted = call.cost == 0 || is_drawn && call.cost <= call.left;
        Some(SuppressedOutcome {
            zone: Zone::Drawn { factor, drawn: *call.drawn, is_admitted },
            ..*last_outcome
        })
    }

    fn leased_outcome(
        _: &SuppressedLimit,
        last_outcome: &SuppressedOutcome,
        call: LocalCall<'_>,
    ) -> SuppressedOutcome {
        SuppressedOutcome {
            zone: Zone::Allowed,
            remaining: last_outcome.remaining + call.left - call.cost,
            ..*last_outcome
        }
    }

    fn reports_local_calls(_: &SuppressedLimit) -> bool {
        true
    }

    fn allows_local_draws(outcome: &SuppressedOutcome) -> bool {
        matches!(outcome.zone, Zone::Drawn { .. })
    }

    fn part(limit: &SuppressedLimit, index: u32, count: u32) -> Option<SuppressedLimit> {
        let window = super::super::Absolute::part(&limit.window, index, count)?;
        Some(SuppressedLimit { window, ..*limit })
    }
}

/// Refunds the unspent units, and adds the reported calls to the observed ones. A lease is not a call, so the
/// two series differ from the first lease on.
fn apply_returns(limit: &SuppressedLimit, state: &mut SuppressedState, now: Timestamp, params: &LeaseParams) {
    let window = limit.window.window_at(Call::new(now, 0));
    if state.observed.is_none() {
        state.observed = Some(Box::new(state.accepted.clone()));
    }
    state.repair_observed(window);
    if params.unspent.is_counted(now, limit.window.window_us) {
        let refund = Refund { now, units: params.unspent.units, recorded: Some(params.unspent.recorded()) };
        refund_series(&mut state.accepted, window, limit.window.group_us, refund);
    }
    if let Some(observed) = &mut state.observed
        && params.reported > 0
    {
        let view = observed.view(window);
        let units = params.reported.min(MAX_EXACT.saturating_sub(view.used));
        let group_us = limit.window.group_us;
        observed.record(window, view, NewUnits { stamp: window.now, group_us, units });
    }
}

/// Records a lease as accepted units, and updates its outcome.
fn record(limit: &SuppressedLimit, state: &mut SuppressedState, call: Call, outcome: &mut SuppressedOutcome) {
    let window = limit.window.window_at(call);
    if call.cost == 0 {
        if outcome.view.is_stepped_back {
            state.accepted.forget_expired(window, outcome.view);
        }
        return;
    }
    state.capacity = outcome.soft;
    let stamp = limit.window.latest_stamp(call);
    outcome.recorded = state.accepted.recorded_at(window, outcome.view, stamp);
    outcome.resets_at = outcome.recorded + limit.window.window_us;
    outcome.remaining = outcome.soft.saturating_sub(outcome.view.used).saturating_sub(call.cost);
    let view: View = outcome.view;
    state.accepted.record(window, view, limit.window.new_units(call));
}
