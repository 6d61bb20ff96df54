//! Leases of a suppressed limit. Within the soft limit, they are as of any other strategy. Above it, the
//! shared count grants the share of the wanted units that is to pass, and the instance draws by itself.

use super::{GOLDEN, OBSERVED_MAX, Suppressed, SuppressedLimit, SuppressedOutcome, SuppressedState, Zone};
use crate::clock::Timestamp;
use crate::strategy::absolute::refund_series;
use crate::strategy::lease::Leased;
use crate::strategy::series::{Record, View};
use crate::strategy::{Call, Leasable, LeaseAsk, LeaseCall, Refund, Strategy, Turn};

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
    ) -> Leased<SuppressedOutcome> {
        let LeaseCall { now, ask, sharers } = call;
        settle(limit, state, now, ask);
        let call = Call::new(now, ask.need.max(1));
        let mut outcome = Self::decide(limit, state, call);
        let free = outcome.soft.saturating_sub(outcome.view.used);
        let room = limit.factor.hard_capacity(outcome.soft).saturating_sub(outcome.view.used);
        let mut units = ask.share_of(free, sharers);
        if units > 0 {
            outcome.zone = Zone::Allowed;
        } else if call.cost > free && call.cost <= room {
            // The calls that the instance reported are observed already.
            let share = state.share(limit.window.look(call), outcome.soft, 0);
            state.drawn = state.drawn(limit.window.look(call), outcome.view).wrapping_add(GOLDEN);
            let drawn = (ask.want as f64 * share + f64::from(state.drawn) / DRAWS) as u64;
            units = drawn.min((room / sharers.max(1)).max(1));
            let is_admitted = units > 0;
            outcome.zone = Zone::Drawn { factor: 1.0 - share, drawn: state.drawn, is_admitted };
            outcome.remaining = free;
        }
        let stamp = ask.end(now, units);
        record(limit, state, call.costing(units).stamped(stamp), &mut outcome);
        Leased { units, recorded: Timestamp::derived(outcome.recorded), outcome }
    }

    fn spend(limit: &SuppressedLimit, told: &SuppressedOutcome, turn: Turn<'_>) -> Option<SuppressedOutcome> {
        let Zone::Drawn { factor, .. } = told.zone else {
            return (turn.cost <= turn.left).then(|| Self::of_lease(limit, told, turn));
        };
        *turn.drawn = turn.drawn.wrapping_add(GOLDEN);
        let is_drawn = f64::from(*turn.drawn) < (1.0 - factor) * DRAWS;
        let is_admitted = turn.cost == 0 || is_drawn && turn.cost <= turn.left;
        Some(SuppressedOutcome { zone: Zone::Drawn { factor, drawn: *turn.drawn, is_admitted }, ..*told })
    }

    fn of_lease(_: &SuppressedLimit, told: &SuppressedOutcome, turn: Turn<'_>) -> SuppressedOutcome {
        SuppressedOutcome { zone: Zone::Allowed, remaining: told.remaining + turn.left - turn.cost, ..*told }
    }

    fn is_counting_denied(_: &SuppressedLimit) -> bool {
        true
    }

    fn is_drawing(outcome: &SuppressedOutcome) -> bool {
        matches!(outcome.zone, Zone::Drawn { .. })
    }

    fn part(limit: &SuppressedLimit, index: u32, count: u32) -> Option<SuppressedLimit> {
        let window = super::super::Absolute::part(&limit.window, index, count)?;
        Some(SuppressedLimit { window, ..*limit })
    }
}

/// Refunds the unspent units, and adds the reported calls to the observed ones. A lease is not a call, so the
/// two series differ from the first lease on.
fn settle(limit: &SuppressedLimit, state: &mut SuppressedState, now: Timestamp, ask: &LeaseAsk) {
    let look = limit.window.look(Call::new(now, 0));
    if state.observed.is_none() {
        state.observed = Some(Box::new(state.accepted.clone()));
    }
    state.repair_observed(look);
    if ask.back.is_counting(now, limit.window.window_us) {
        let refund = Refund { now, units: ask.back.units, recorded: Some(ask.back.recorded) };
        refund_series(&mut state.accepted, look, limit.window.group_us, refund);
    }
    if let Some(observed) = &mut state.observed
        && ask.seen > 0
    {
        let view = observed.view(look);
        let units = ask.seen.min(OBSERVED_MAX.saturating_sub(view.used));
        let group_us = limit.window.group_us;
        observed.record(look, view, Record { stamp: look.now, group_us, units, is_late: false });
    }
}

/// Records a lease as accepted units, and updates its outcome.
fn record(limit: &SuppressedLimit, state: &mut SuppressedState, call: Call, outcome: &mut SuppressedOutcome) {
    let look = limit.window.look(call);
    if call.cost == 0 {
        if outcome.view.is_stepped_back {
            state.accepted.settle(look, outcome.view);
        }
        return;
    }
    state.capacity = outcome.soft;
    let stamp = limit.window.latest_stamp(call);
    outcome.recorded = state.accepted.recorded_at(look, outcome.view, stamp);
    outcome.resets_at = outcome.recorded + limit.window.window_us;
    outcome.remaining = outcome.soft.saturating_sub(outcome.view.used).saturating_sub(call.cost);
    let view: View = outcome.view;
    state.accepted.record(look, view, limit.window.record(call));
}
