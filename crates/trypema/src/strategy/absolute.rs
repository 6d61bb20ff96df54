//! Absolute: a sliding window that never admits more than its capacity in any interval of its length.

#[cfg(feature = "_redis")]
mod lease;
#[cfg(feature = "_redis")]
mod wire;

use std::time::Duration;

use super::series::{AfterWait, JoinResult, NewUnits, Series, View, WindowAt, bounded_group_us};
use super::{Call, Refund, SharedState, Strategy};
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionTime, NEVER};
use crate::error::TrypemaError;
use crate::units::{MAX_EXACT, RateGroupSizeMs, RateLimit, WindowSizeSeconds, window_micros};

/// The largest limit: one below the number that stands for [`AbsoluteLimit::of_live_state`].
const MAX_LIMIT: u64 = MAX_EXACT - 1;

/// The sliding window of coalesced buckets; see the [module](super).
#[derive(Debug, Clone, Copy)]
pub struct Absolute;

/// The capacity and the window of the absolute strategy.
///
/// ```
/// use trypema::{AbsoluteLimit, RateGroupSizeMs, RateLimit, WindowSizeSeconds};
///
/// let limit = AbsoluteLimit::new(
///     RateLimit::try_from(5.5)?,
///     WindowSizeSeconds::try_from(60)?,
///     RateGroupSizeMs::try_from(10)?,
/// );
/// assert_eq!(limit.capacity(), 330);
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbsoluteLimit {
    pub(super) capacity: u64,
    pub(super) window_us: u64,
    pub(super) group_us: u64,
    /// Whether the capacity of a live state takes precedence over this one.
    pub(super) is_sticky: bool,
}

impl AbsoluteLimit {
    /// Returns a limit of `rate` over `window`. Calls within `group` of a bucket's first call share the
    /// bucket.
    #[inline]
    pub fn new(rate: RateLimit, window: WindowSizeSeconds, group: RateGroupSizeMs) -> Self {
        let window_us = window.as_micros();
        let group_us = bounded_group_us(window_us, group.as_micros());
        Self { capacity: window.capacity(rate), window_us, group_us, is_sticky: false }
    }

    /// Returns a limit of exactly `limit` units in any `window`, which is rounded up to whole microseconds.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trypema::AbsoluteLimit;
    ///
    /// let limit = AbsoluteLimit::per_window(100, Duration::from_secs(60))?;
    /// assert_eq!(limit.capacity(), 100);
    /// assert!(AbsoluteLimit::per_window(0, Duration::from_secs(60)).is_err());
    /// # Ok::<(), trypema::TrypemaError>(())
    /// ```
    pub fn per_window(limit: u64, window: Duration) -> Result<Self, TrypemaError> {
        if limit == 0 || limit > MAX_LIMIT {
            return Err(TrypemaError::InvalidLimit { given: limit, max: MAX_LIMIT });
        }
        let window_us = window_micros(window)?;
        let group_us = bounded_group_us(window_us, RateGroupSizeMs::DEFAULT.as_micros());
        Ok(Self { capacity: limit, window_us, group_us, is_sticky: false })
    }

    /// Returns the same limit, with buckets that span `group`: calls within `group` of a bucket's first call
    /// share it.
    #[must_use]
    pub fn grouped(self, group: RateGroupSizeMs) -> Self {
        Self { group_us: bounded_group_us(self.window_us, group.as_micros()), ..self }
    }

    /// Returns the same limit, except that a live key keeps the capacity it was first called with.
    #[must_use]
    pub fn sticky(self) -> Self {
        Self { is_sticky: true, ..self }
    }

    /// Returns a limit that applies the capacity of the live state. A key without a live state is not
    /// limited.
    pub(crate) fn of_live_state(window: WindowSizeSeconds, group: RateGroupSizeMs) -> Self {
        let window_us = window.as_micros();
        let group_us = bounded_group_us(window_us, group.as_micros());
        Self { capacity: MAX_EXACT, window_us, group_us, is_sticky: true }
    }

    /// Whether this is [`AbsoluteLimit::of_live_state`]: no rate results in that capacity.
    pub(super) fn is_of_live_state(&self) -> bool {
        self.capacity == MAX_EXACT
    }

    /// Returns the units that fit into the window.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the length of the window.
    pub fn window(&self) -> Duration {
        Duration::from_micros(self.window_us)
    }

    /// Returns the time at which the units of `call` are counted, at most a window after `now`. A later time
    /// would look as if the clock had gone back.
    pub(super) fn latest_stamp(&self, call: Call) -> u64 {
        call.stamp.as_micros().min(call.now.as_micros() + self.window_us)
    }

    pub(super) fn window_at(&self, call: Call) -> WindowAt {
        WindowAt { now: call.now.as_micros(), window_us: self.window_us }
    }

    pub(super) fn new_units(&self, call: Call) -> NewUnits {
        NewUnits { stamp: self.latest_stamp(call), group_us: self.group_us, units: call.cost }
    }
}

/// The absolute strategy's state of a key.
#[derive(Debug, Clone, Default)]
pub struct AbsoluteState {
    series: Series,
    /// The capacity under which a call was last admitted.
    capacity: u64,
}

impl AbsoluteState {}

/// The outcome of the absolute strategy.
#[derive(Debug, Clone, Copy)]
pub struct AbsoluteOutcome {
    is_admitted: bool,
    capacity: u64,
    remaining: u64,
    not_before: u64,
    used_after_wait: u64,
    recorded: u64,
    resets_at: u64,
    view: View,
}

impl AbsoluteOutcome {
    /// Returns the outcome of a call that joined the open bucket.
    #[inline(always)]
    fn joined(limit: &AbsoluteLimit, capacity: u64, joined: JoinResult) -> Self {
        Self {
            is_admitted: true,
            capacity,
            remaining: capacity - joined.view.used,
            not_before: joined.recorded,
            used_after_wait: 0,
            recorded: joined.recorded,
            resets_at: joined.recorded + limit.window_us,
            view: joined.view,
        }
    }

    /// Returns the units that still count after a denied caller has waited, if no other call is made. The
    /// wait is rounded up to whole milliseconds.
    pub(crate) fn used_after_wait(&self) -> u64 {
        self.used_after_wait
    }
}

impl SharedState<AbsoluteLimit> for AbsoluteState {
    fn adopt(&mut self, limit: &AbsoluteLimit) {
        if !limit.is_of_live_state() {
            self.capacity = limit.capacity;
        }
    }

    fn condensed(&self, limit: &AbsoluteLimit, now: Timestamp) -> Self {
        let series = self.series.condensed(now.as_micros(), &[limit.window_us]);
        Self { series, capacity: self.capacity }
    }
}

impl Strategy for Absolute {
    type Limit = AbsoluteLimit;
    type State = AbsoluteState;
    type Outcome = AbsoluteOutcome;
    type Decision<'l> = Decision;

    #[inline(always)]
    fn decide(limit: &AbsoluteLimit, state: &AbsoluteState, call: Call) -> AbsoluteOutcome {
        let window = limit.window_at(call);
        let view = state.series.view(window);
        let capacity = if limit.is_sticky && view.used > 0 { state.capacity } else { limit.capacity };
        let free = capacity.saturating_sub(view.used);
        let is_admitted = call.needed <= free;
        let recorded = state.series.recorded_at(window, view, limit.latest_stamp(call));
        let resets_at = if is_admitted && call.cost > 0 {
            recorded + limit.window_us
        } else {
            state.series.empty_at(window, view)
        };
        let denied = if is_admitted {
            RetryAt { not_before: window.now, used_after_wait: 0 }
        } else {
            RetryAt::until_fits(&state.series, OverLimit { window, view, capacity, cost: call.needed })
        };
        AbsoluteOutcome {
            is_admitted,
            capacity,
            remaining: if is_admitted { free.saturating_sub(call.cost) } else { free },
            not_before: denied.not_before,
            used_after_wait: denied.used_after_wait,
            recorded,
            resets_at,
            view,
        }
    }

    #[inline(always)]
    fn take(limit: &AbsoluteLimit, state: &mut AbsoluteState, now: Timestamp, cost: u64) -> AbsoluteOutcome {
        let call = Call::new(now, cost);
        let capacity =
            if limit.is_sticky && state.series.total() > 0 { state.capacity } else { limit.capacity };
        if let Some(joined) = state.series.join(limit.window_at(call), limit.new_units(call), capacity) {
            state.capacity = capacity;
            return AbsoluteOutcome::joined(limit, capacity, joined);
        }
        let outcome = Self::decide(limit, state, call);
        Self::commit(limit, state, call, &outcome);
        outcome
    }

    #[inline]
    fn is_admitted(outcome: &AbsoluteOutcome) -> bool {
        outcome.is_admitted
    }

    #[inline(always)]
    fn commit(limit: &AbsoluteLimit, state: &mut AbsoluteState, call: Call, outcome: &AbsoluteOutcome) {
        let window = limit.window_at(call);
        if outcome.is_admitted && call.cost > 0 {
            let units = call.units_to_record(outcome.view.used, MAX_EXACT);
            state.series.record(window, outcome.view, NewUnits { units, ..limit.new_units(call) });
            state.capacity = outcome.capacity;
        } else if outcome.view.is_stepped_back {
            state.series.forget_expired(window, outcome.view);
        }
    }

    fn recorded_at(_: &AbsoluteLimit, outcome: &AbsoluteOutcome, _: Call) -> Timestamp {
        Timestamp::derived(outcome.recorded)
    }

    fn recorded_units(_: &AbsoluteLimit, outcome: &AbsoluteOutcome, call: Call) -> u64 {
        call.units_to_record(outcome.view.used, MAX_EXACT)
    }

    fn available(limit: &AbsoluteLimit, state: &AbsoluteState, call: Call) -> u64 {
        let view = state.series.view(limit.window_at(call));
        let capacity = if limit.is_sticky && view.used > 0 { state.capacity } else { limit.capacity };
        capacity.saturating_sub(view.used).min(call.cost)
    }

    fn refund(limit: &AbsoluteLimit, state: &mut AbsoluteState, refund: Refund) -> u64 {
        let window = limit.window_at(Call::new(refund.now, 0));
        refund_series(&mut state.series, window, limit.group_us, refund)
    }

    fn retention_us(limit: &AbsoluteLimit) -> u64 {
        limit.window_us
    }

    fn fresh_from(state: &AbsoluteState) -> Timestamp {
        Timestamp::derived(state.series.fresh_from())
    }

    #[inline(always)]
    fn decision(_: &AbsoluteLimit, outcome: AbsoluteOutcome, decided_at: DecisionTime) -> Decision {
        Decision {
            is_allowed: outcome.is_admitted,
            attempts: None,
            limit: outcome.capacity,
            remaining: outcome.remaining,
            not_before: Timestamp::derived(outcome.not_before),
            resets_at: Timestamp::derived(outcome.resets_at),
            decided_at,
        }
    }

    #[inline]
    fn core(decision: &Decision) -> Decision {
        *decision
    }
}

/// Needed units that are more than the free part of a capacity.
#[derive(Clone, Copy)]
pub(super) struct OverLimit {
    pub(super) window: WindowAt,
    pub(super) view: View,
    pub(super) capacity: u64,
    pub(super) cost: u64,
}

/// The time at which a denied call would be admitted, and the units that still count then.
pub(super) struct RetryAt {
    pub(super) not_before: u64,
    pub(super) used_after_wait: u64,
}

impl RetryAt {
    /// Returns the time at which the cost fits under the capacity, and the units that still count after
    /// waiting for it. The second value assumes a wait in whole milliseconds, rounded up.
    #[inline(always)]
    pub(super) fn until_fits(series: &Series, excess: OverLimit) -> Self {
        let OverLimit { window, view, capacity, cost } = excess;
        if cost > capacity {
            return Self { not_before: NEVER.as_micros(), used_after_wait: 0 };
        }
        let excess = view.used + cost - capacity;
        let AfterWait { at: not_before, staying } = series.after_wait(window, view, excess);
        Self { not_before, used_after_wait: staying }
    }
}

/// Refunds units to a series, after forgetting those that have left the window.
pub(super) fn refund_series(series: &mut Series, window: WindowAt, group_us: u64, refund: Refund) -> u64 {
    let view = series.view(window);
    series.forget_expired(window, view);
    match refund.recorded {
        Some(recorded) => series.refund_at(recorded.at.as_micros(), group_us, refund.units),
        None => series.refund_oldest(refund.units),
    }
}
