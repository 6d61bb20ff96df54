//! Token bucket: one or more limits. A call takes its cost from all of them or from none.

mod debt;
#[cfg(feature = "_redis")]
mod lease;
mod limits;
mod per_limit;
mod single;
mod state;
#[cfg(feature = "_redis")]
mod wire;

#[cfg(feature = "_redis")]
pub(super) use debt::MAX_PENDING;
use debt::{Fall, Pending};
pub use limits::{TokenBucketLimits, TokenLimit};
pub(crate) use per_limit::PerLimit;
pub use state::TokenBucketState;
use state::{Debts, DebtsAfter};

use super::origin::Origin;
use super::{Call, Recorded, Refund, SharedState, Strategy};
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionTime, TokenBucketDecision};
use crate::units::MAX_EXACT;

/// The bucket of tokens that refills continuously; see the [module](super).
#[derive(Debug, Clone, Copy)]
pub struct TokenBucket;

/// The outcome of the token bucket.
#[derive(Debug, Clone)]
pub struct TokenBucketOutcome {
    pub(crate) is_admitted: bool,
    /// The units that are paid if the call was admitted. The units that it needs if it was denied.
    pub(crate) cost: u64,
    /// The position of the first limit that did not have the cost.
    pub(crate) failed: usize,
    /// The time of the decision.
    pub(crate) at: u64,
    /// The debt to each limit before the call.
    pub(crate) owed: PerLimit,
    /// The time at which the cost fits, and the time at which no debt is left. Set only where pending units
    /// matter: otherwise the decision computes them from `owed`.
    pub(crate) not_before: Option<u64>,
    pub(crate) resets_at: Option<u64>,
    is_stepped_back: bool,
}

impl TokenBucketOutcome {
    /// Returns the debt to the limit at `position` after the call.
    pub(crate) fn owed_after(&self, position: usize, limit: &TokenLimit) -> u64 {
        let paid = if self.is_admitted { limit.units_of_any(self.cost) } else { 0 };
        (self.owed[position] + paid).min(MAX_EXACT)
    }
}

impl SharedState<TokenBucketLimits> for TokenBucketState {}

impl Strategy for TokenBucket {
    type Limit = TokenBucketLimits;
    type State = TokenBucketState;
    type Outcome = TokenBucketOutcome;
    type Decision<'l> = TokenBucketDecision<'l>;

    #[inline]
    fn decide(limits: &TokenBucketLimits, state: &TokenBucketState, call: Call) -> TokenBucketOutcome {
        match single::SingleLimit::of(limits, state) {
            Some(single) if call.stamp == call.now => single.decide(call),
            _ => decide_all(limits, state, call),
        }
    }

    #[inline(always)]
    fn take(
        limits: &TokenBucketLimits,
        state: &mut TokenBucketState,
        now: Timestamp,
        cost: u64,
    ) -> TokenBucketOutcome {
        let call = Call::new(now, cost);
        if let Some(single) = single::SingleLimit::of(limits, state)
            && let Some((outcome, debt)) = single.take(call)
        {
            state.0 = Debts::One(debt);
            return outcome;
        }
        let outcome = Self::decide(limits, state, call);
        Self::commit(limits, state, call, &outcome);
        outcome
    }

    #[inline]
    fn is_admitted(outcome: &TokenBucketOutcome) -> bool {
        outcome.is_admitted
    }

    #[inline]
    fn commit(
        limits: &TokenBucketLimits,
        state: &mut TokenBucketState,
        call: Call,
        outcome: &TokenBucketOutcome,
    ) {
        let is_paying = outcome.is_admitted && call.cost > 0;
        if !is_paying && !outcome.is_stepped_back {
            return;
        }
        commit_all(limits, state, call, outcome);
    }

    /// The time of the take, from which a refund computes the part that has been refilled since.
    fn recorded_at(limits: &TokenBucketLimits, outcome: &TokenBucketOutcome, call: Call) -> Timestamp {
        Timestamp::derived(postponed_to(limits, outcome.at, call).unwrap_or(outcome.at))
    }

    fn recorded_units(limits: &TokenBucketLimits, outcome: &TokenBucketOutcome, call: Call) -> u64 {
        let countable = |(position, limit): (usize, &TokenLimit)| {
            let tokens = MAX_EXACT.saturating_sub(outcome.owed[position]) / limit.unit;
            call.units_to_record(0, tokens)
        };
        limits.as_slice().iter().enumerate().map(countable).min().unwrap_or(call.cost)
    }

    fn origin(state: &TokenBucketState) -> Origin {
        Origin { window_end: 0, count: state.count().number() }
    }

    fn available(limits: &TokenBucketLimits, state: &TokenBucketState, call: Call) -> u64 {
        let outcome = Self::decide(limits, state, call.with_cost(0));
        let left =
            limits.as_slice().iter().enumerate().map(|(position, limit)| limit.left(outcome.owed[position]));
        left.min().unwrap_or(0).min(call.cost)
    }

    fn refund(limits: &TokenBucketLimits, state: &mut TokenBucketState, refund: Refund) -> u64 {
        let is_certain =
            |recorded: Recorded| recorded.origin == Self::origin(state) && state.is_whole(limits);
        if !refund.recorded.is_none_or(is_certain) {
            return 0;
        }
        let at = state.evaluation_time(limits, refund.now.as_micros());
        if at < state.last() {
            state.make_all_due(at);
        }
        let recorded = refund.recorded.map(|recorded| recorded.at.as_micros());
        let from_pending = match (&mut state.0, recorded) {
            (Debts::Many(many), Some(stamp)) if stamp > at => {
                debt::remove(&mut many.pending, stamp, refund.units)
            }
            _ => 0,
        };
        let units = refund.units - from_pending;
        let mut after = DebtsAfter::new(limits, at);
        let mut refunded = units;
        for ((position, limit), left) in limits.as_slice().iter().enumerate().zip(after.owed.as_mut_slice()) {
            let owed = state.owed(limits, position, at);
            // Refilling has already paid off a part of these units. A refund does not return that part again.
            let paid_us = recorded.map_or(0, |stamp| at.saturating_sub(stamp));
            let back = limit.drained(limit.units_of_any(units).min(owed.most), paid_us).min(owed.due);
            *left = owed.due - back;
            refunded = refunded.min(back / limit.unit);
            // Units that were spent under a larger limit are not an overdraft.
            if owed.most > limit.full && *left + owed.pending > limit.full {
                after.overdrawn |= 1 << position;
            }
        }
        state.set(limits, after);
        from_pending + refunded
    }

    fn retention_us(limits: &TokenBucketLimits) -> u64 {
        limits.retention_us()
    }

    fn fresh_from(state: &TokenBucketState) -> Timestamp {
        Timestamp::derived(match &state.0 {
            Debts::One(one) => one.debt().paid_at(one.last()),
            Debts::Many(many) => debt::all_paid_at(many.last, &many.debts, &many.pending),
        })
    }

    #[inline(always)]
    fn decision(
        limits: &TokenBucketLimits,
        outcome: TokenBucketOutcome,
        decided_at: DecisionTime,
    ) -> TokenBucketDecision<'_> {
        TokenBucketDecision { limits, outcome, decided_at }
    }

    fn core(decision: &TokenBucketDecision<'_>) -> Decision {
        decision.core()
    }
}

/// Decides a call under several limits, or with pending units.
#[inline(never)]
fn decide_all(limits: &TokenBucketLimits, state: &TokenBucketState, call: Call) -> TokenBucketOutcome {
    let at = state.evaluation_time(limits, call.now.as_micros());
    let mut outcome = TokenBucketOutcome {
        is_admitted: true,
        cost: call.cost,
        failed: usize::MAX,
        at,
        owed: PerLimit::zeros(limits.as_slice().len()),
        not_before: None,
        resets_at: None,
        is_stepped_back: at < state.last(),
    };
    let each = limits.as_slice().iter().enumerate();
    for ((position, limit), slot) in each.zip(outcome.owed.as_mut_slice()) {
        let owed = state.owed(limits, position, at).total();
        *slot = owed;
        if !limit.has(owed, call.needed) && call.needed > 0 {
            (outcome.is_admitted, outcome.cost) = (false, call.needed);
            outcome.failed = outcome.failed.min(position);
        }
    }
    if !state.pending().is_empty() || call.stamp > call.now {
        look_ahead(limits, state, call, &mut outcome);
    }
    outcome
}

/// Computes the times of the outcome where some units are still pending.
#[cold]
fn look_ahead(
    limits: &TokenBucketLimits,
    state: &TokenBucketState,
    call: Call,
    outcome: &mut TokenBucketOutcome,
) {
    let at = outcome.at;
    // After the clock went back, no units are pending: all are due.
    let mut pending = if outcome.is_stepped_back { Vec::new() } else { state.pending().to_vec() };
    let is_paying = outcome.is_admitted && call.cost > 0;
    let postponed_to = postponed_to(limits, at, call);
    if let (Some(stamp), true) = (postponed_to, is_paying) {
        debt::insert(&mut pending, Pending { stamp, units: call.cost });
    }
    let (mut fits_at, mut resets_at) = (at, at);
    for (position, limit) in limits.as_slice().iter().enumerate() {
        let owed = state.owed(limits, position, at);
        let due = if outcome.is_stepped_back { outcome.owed[position] } else { owed.due };
        let room = limit.full - limit.units(call.needed.min(limit.capacity));
        fits_at = fits_at.max(debt::falls_to(limit, &pending, Fall { due, at, room, most: owed.most }));
        let owed_after = outcome.owed_after(position, limit);
        let most = if owed_after > limit.full { MAX_EXACT } else { owed.most };
        let paid = if is_paying && postponed_to.is_none() { limit.units_of_any(call.cost) } else { 0 };
        let due = (due + paid).min(most);
        resets_at = resets_at.max(debt::falls_to(limit, &pending, Fall { due, at, room: 0, most }));
    }
    // A script in Redis cannot return a later time.
    outcome.not_before = Some(fits_at.min(MAX_EXACT));
    outcome.resets_at = Some(resets_at.min(MAX_EXACT));
}

/// Records a call under several limits, or with pending units.
#[inline(never)]
fn commit_all(
    limits: &TokenBucketLimits,
    state: &mut TokenBucketState,
    call: Call,
    outcome: &TokenBucketOutcome,
) {
    if outcome.is_stepped_back {
        state.make_all_due(outcome.at);
    }
    let is_paying = outcome.is_admitted && call.cost > 0;
    if !is_paying {
        return;
    }
    let postponed_to = postponed_to(limits, outcome.at, call);
    let mut after = DebtsAfter::new(limits, outcome.at);
    for ((position, limit), owed) in limits.as_slice().iter().enumerate().zip(after.owed.as_mut_slice()) {
        let paid = if postponed_to.is_none() { limit.units_of_any(call.cost) } else { 0 };
        *owed = (state.owed(limits, position, outcome.at).due + paid).min(MAX_EXACT);
        if outcome.owed_after(position, limit) > limit.full {
            after.overdrawn |= 1 << position;
        }
    }
    state.set(limits, after);
    if let Some(stamp) = postponed_to {
        state.postpone(stamp, call.cost);
    }
}

/// Returns the time at which the units of a postponed call count. Returns `None` if they count at `at`. The
/// time is at most the longest refill after `at`: beyond that, the clock would seem to have gone back.
fn postponed_to(limits: &TokenBucketLimits, at: u64, call: Call) -> Option<u64> {
    let stamp = call.stamp.as_micros().min(at + limits.retention_us());
    (call.stamp > call.now && stamp > at).then_some(stamp)
}
