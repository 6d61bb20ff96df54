//! A toy: a fixed window under another name.

#[cfg(feature = "_redis")]
mod wire;

use std::time::Duration;

use super::aligned::AlignedWindow;
use super::origin::{CountId, NumberPair, Origin};
use super::{Call, Refund, SharedState, Strategy};
use crate::clock::{Span, Timestamp};
use crate::decision::{Decision, DecisionTime, NEVER};
use crate::error::TrypemaError;
use crate::units::{MAX_EXACT, window_micros};

/// The window aligned to the epoch; see the [module](super).
#[derive(Debug, Clone, Copy)]
pub struct ToyWindow;

/// The units that fit into each window.
///
/// ```
/// use std::time::Duration;
/// use trypema::ToyWindowLimit;
///
/// let limit = ToyWindowLimit::new(100, Duration::from_secs(60))?;
/// assert_eq!(limit.limit(), 100);
/// assert!(ToyWindowLimit::new(0, Duration::from_secs(60)).is_err());
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToyWindowLimit {
    limit: u64,
    window: AlignedWindow,
}

impl ToyWindowLimit {
    /// Returns a limit of `limit` units per `window`, which is rounded up to whole microseconds.
    pub fn new(limit: u64, window: Duration) -> Result<Self, TrypemaError> {
        Ok(Self { limit: exact_limit(limit)?, window: AlignedWindow::new(window_micros(window)?) })
    }

    /// Returns the units that fit into a window.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the length of the window.
    pub fn window(&self) -> Duration {
        Duration::from_micros(self.window.window_us)
    }
}

fn exact_limit(limit: u64) -> Result<u64, TrypemaError> {
    if limit == 0 || limit > MAX_EXACT {
        return Err(TrypemaError::InvalidLimit { given: limit, max: MAX_EXACT });
    }
    Ok(limit)
}

/// The fixed window's state of a key: the end of a window and its count.
#[derive(Debug, Clone, Copy, Default)]
pub struct ToyWindowState(NumberPair);

impl ToyWindowState {
    #[inline(always)]
    fn ends_at(&self) -> u64 {
        self.0.first()
    }

    #[inline(always)]
    fn counted(&self) -> u64 {
        self.0.second()
    }
}

/// The outcome of the fixed window.
#[derive(Debug, Clone, Copy)]
pub struct ToyWindowOutcome {
    is_admitted: bool,
    is_never: bool,
    is_stepped_back: bool,
    used: u64,
    remaining: u64,
    ends_at: u64,
}

impl SharedState<ToyWindowLimit> for ToyWindowState {}

impl Strategy for ToyWindow {
    type Limit = ToyWindowLimit;
    type State = ToyWindowState;
    type Outcome = ToyWindowOutcome;
    type Decision<'l> = Decision;

    #[inline(always)]
    fn decide(limit: &ToyWindowLimit, state: &ToyWindowState, call: Call) -> ToyWindowOutcome {
        let WindowCount { ends_at, used, is_stepped_back } = count_at(limit, state, call.now.as_micros());
        let free = limit.limit.saturating_sub(used);
        let is_admitted = call.needed <= free;
        ToyWindowOutcome {
            is_admitted,
            is_never: call.needed > limit.limit,
            is_stepped_back,
            used,
            remaining: if is_admitted { free.saturating_sub(call.cost) } else { free },
            ends_at,
        }
    }

    /// All moments of one window have the same outcome.
    #[inline(always)]
    fn take_within(
        limit: &ToyWindowLimit,
        state: &mut ToyWindowState,
        span: Span,
        cost: u64,
    ) -> Option<ToyWindowOutcome> {
        let call = Call::new(span.earliest, cost);
        let outcome = Self::decide(limit, state, call);
        (span.latest.as_micros() < outcome.ends_at).then(|| {
            Self::commit(limit, state, call, &outcome);
            outcome
        })
    }

    #[inline]
    fn is_admitted(outcome: &ToyWindowOutcome) -> bool {
        outcome.is_admitted
    }

    #[inline(always)]
    fn commit(_: &ToyWindowLimit, state: &mut ToyWindowState, call: Call, outcome: &ToyWindowOutcome) {
        let is_counting = outcome.is_admitted && call.cost > 0;
        if is_counting || outcome.is_stepped_back {
            let units = if is_counting { call.units_to_record(outcome.used, MAX_EXACT) } else { 0 };
            let count = match outcome.used {
                0 => CountId::begun_at(call.now.as_micros()),
                _ => state.0.count(),
            };
            *state = ToyWindowState(NumberPair::new(outcome.ends_at, outcome.used + units, count));
        }
    }

    fn recorded_units(_: &ToyWindowLimit, outcome: &ToyWindowOutcome, call: Call) -> u64 {
        call.units_to_record(outcome.used, MAX_EXACT)
    }

    /// A stamp after this window is moved into it, because the units may be spent now.
    fn recorded_at(limit: &ToyWindowLimit, outcome: &ToyWindowOutcome, call: Call) -> Timestamp {
        let (start, end) = (outcome.ends_at - limit.window.window_us, outcome.ends_at - 1);
        Timestamp::derived(call.stamp.as_micros().clamp(start, end))
    }

    fn origin(state: &ToyWindowState) -> Origin {
        Origin { window_end: state.ends_at(), count: state.0.count().number() }
    }

    fn available(limit: &ToyWindowLimit, state: &ToyWindowState, call: Call) -> u64 {
        Self::decide(limit, state, call.with_cost(0)).remaining.min(call.cost)
    }

    /// Whatever the limit is now, the count that the units joined has them until it ends.
    fn refund(_: &ToyWindowLimit, state: &mut ToyWindowState, refund: Refund) -> u64 {
        let is_live = refund.now.as_micros() < state.ends_at();
        if !is_live || refund.recorded.is_some_and(|recorded| recorded.origin != Self::origin(state)) {
            return 0;
        }
        let refunded = refund.units.min(state.counted());
        let counted = state.counted() - refunded;
        *state = ToyWindowState(NumberPair::new(state.ends_at(), counted, state.0.count()));
        refunded
    }

    fn retention_us(limit: &ToyWindowLimit) -> u64 {
        limit.window.window_us
    }

    fn fresh_from(state: &ToyWindowState) -> Timestamp {
        Timestamp::derived(if state.counted() == 0 { 0 } else { state.ends_at() })
    }

    #[inline(always)]
    fn decision(limit: &ToyWindowLimit, outcome: ToyWindowOutcome, decided_at: DecisionTime) -> Decision {
        let ends_at = Timestamp::derived(outcome.ends_at);
        Decision {
            is_allowed: outcome.is_admitted,
            attempts: None,
            limit: limit.limit,
            remaining: outcome.remaining,
            not_before: if outcome.is_never { NEVER } else { ends_at },
            resets_at: ends_at,
            decided_at,
        }
    }

    #[inline]
    fn core(decision: &Decision) -> Decision {
        *decision
    }
}

/// The window that counts at some moment.
struct WindowCount {
    ends_at: u64,
    used: u64,
    /// Whether all history counts as happening now, because the clock went back by more than a window, or
    /// because the state's window is none of this calendar's. That is recorded even if the call is denied.
    is_stepped_back: bool,
}

#[inline(always)]
fn count_at(limit: &ToyWindowLimit, state: &ToyWindowState, now: u64) -> WindowCount {
    let starts_at = limit.window.start_of(now);
    let ends_at = starts_at + limit.window.window_us;
    let (known, used) = (state.ends_at(), state.counted());
    if known <= starts_at || used == 0 {
        return WindowCount { ends_at, used: 0, is_stepped_back: false };
    }
    if known <= ends_at {
        return WindowCount { ends_at, used, is_stepped_back: false };
    }
    match known <= now + 2 * limit.window.window_us {
        true => WindowCount { ends_at: limit.window.end_from(known), used, is_stepped_back: false },
        false => WindowCount { ends_at, used, is_stepped_back: true },
    }
}
