//! Fixed window: a count that restarts at every multiple of the window.

#[cfg(feature = "_redis")]
mod lease;
#[cfg(feature = "_redis")]
mod wire;

use std::time::Duration;

use super::aligned::AlignedWindow;
use super::{Call, Refund, Strategy};
use crate::clock::{Span, Timestamp};
use crate::decision::{Decision, DecisionTime, NEVER};
use crate::error::TrypemaError;
use crate::units::{MAX_EXACT, window_micros};

/// The window aligned to the epoch; see the [module](super).
#[derive(Debug, Clone, Copy)]
pub struct FixedWindow;

/// The units that fit into each window.
///
/// ```
/// use std::time::Duration;
/// use trypema::FixedWindowLimit;
///
/// let limit = FixedWindowLimit::new(100, Duration::from_secs(60))?;
/// assert_eq!(limit.limit(), 100);
/// assert!(FixedWindowLimit::new(0, Duration::from_secs(60)).is_err());
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedWindowLimit {
    limit: u64,
    window: AlignedWindow,
}

impl FixedWindowLimit {
    /// Returns a limit of `limit` units per `window`, which is rounded up to whole microseconds.
    pub fn new(limit: u64, window: Duration) -> Result<Self, TrypemaError> {
        if limit == 0 || limit > MAX_EXACT {
            return Err(TrypemaError::InvalidLimit { given: limit, max: MAX_EXACT });
        }
        Ok(Self { limit, window: AlignedWindow::new(window_micros(window)?) })
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

/// The fixed window's state of a key: the end of a window and its count.
#[derive(Debug, Clone, Copy, Default)]
pub struct FixedWindowState {
    ends_at: u64,
    counted: u64,
}

/// The outcome of the fixed window.
#[derive(Debug, Clone, Copy)]
pub struct FixedWindowOutcome {
    is_admitted: bool,
    is_never: bool,
    is_stepped_back: bool,
    used: u64,
    remaining: u64,
    ends_at: u64,
}

impl Strategy for FixedWindow {
    const NAME: &'static str = "fixed_window";
    type Limit = FixedWindowLimit;
    type State = FixedWindowState;
    type Outcome = FixedWindowOutcome;
    type Decision<'l> = Decision;

    #[inline(always)]
    fn decide(limit: &FixedWindowLimit, state: &FixedWindowState, call: Call) -> FixedWindowOutcome {
        let WindowCount { ends_at, used, is_stepped_back } = count_at(limit, state, call.now.as_micros());
        let free = limit.limit.saturating_sub(used);
        let is_admitted = call.needed <= free;
        FixedWindowOutcome {
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
        limit: &FixedWindowLimit,
        state: &mut FixedWindowState,
        span: Span,
        cost: u64,
    ) -> Option<FixedWindowOutcome> {
        let call = Call::new(span.earliest, cost);
        let outcome = Self::decide(limit, state, call);
        (span.latest.as_micros() < outcome.ends_at).then(|| {
            Self::commit(limit, state, call, &outcome);
            outcome
        })
    }

    #[inline]
    fn is_admitted(outcome: &FixedWindowOutcome) -> bool {
        outcome.is_admitted
    }

    #[inline(always)]
    fn commit(_: &FixedWindowLimit, state: &mut FixedWindowState, call: Call, outcome: &FixedWindowOutcome) {
        let is_counting = outcome.is_admitted && call.cost > 0;
        if is_counting || outcome.is_stepped_back {
            let units = if is_counting { call.units_to_record(outcome.used, MAX_EXACT) } else { 0 };
            *state = FixedWindowState { ends_at: outcome.ends_at, counted: outcome.used + units };
        }
    }

    /// A stamp after this window is moved into it, because the units may be spent now.
    fn recorded_at(limit: &FixedWindowLimit, outcome: &FixedWindowOutcome, call: Call) -> Timestamp {
        let (start, end) = (outcome.ends_at - limit.window.window_us, outcome.ends_at - 1);
        Timestamp::derived(call.stamp.as_micros().clamp(start, end))
    }

    fn available(limit: &FixedWindowLimit, state: &FixedWindowState, call: Call) -> u64 {
        Self::decide(limit, state, call.with_cost(0)).remaining.min(call.cost)
    }

    fn refund(limit: &FixedWindowLimit, state: &mut FixedWindowState, refund: Refund) -> u64 {
        let is_live = refund.now.as_micros() < state.ends_at;
        // Refund units only to the window that counted them. If the length of the window changed, that is
        // unknown, and the units could be those of other calls.
        let is_this_window = refund.recorded.is_none_or(|moment| {
            limit.window.start_of(moment.as_micros()) + limit.window.window_us == state.ends_at
        });
        if !is_live || !is_this_window {
            return 0;
        }
        let refunded = refund.units.min(state.counted);
        state.counted -= refunded;
        refunded
    }

    fn retention_us(limit: &FixedWindowLimit) -> u64 {
        limit.window.window_us
    }

    fn fresh_from(state: &FixedWindowState) -> Timestamp {
        Timestamp::derived(if state.counted == 0 { 0 } else { state.ends_at })
    }

    #[inline(always)]
    fn decision(limit: &FixedWindowLimit, outcome: FixedWindowOutcome, decided_at: DecisionTime) -> Decision {
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
    /// Whether the clock went back by more than a window, so that all history counts as happening now.
    is_stepped_back: bool,
}

#[inline(always)]
fn count_at(limit: &FixedWindowLimit, state: &FixedWindowState, now: u64) -> WindowCount {
    let starts_at = limit.window.start_of(now);
    let ends_at = starts_at + limit.window.window_us;
    if state.ends_at <= starts_at || state.counted == 0 {
        return WindowCount { ends_at, used: 0, is_stepped_back: false };
    }
    // The state's window starts more than a window in the future.
    if state.ends_at > now + 2 * limit.window.window_us {
        return WindowCount { ends_at, used: state.counted, is_stepped_back: true };
    }
    // The state's window is the current one, the next one (the clock went back), or one of another length
    // (the limit changed).
    let ends_at = if state.ends_at <= ends_at { ends_at } else { limit.window.end_from(state.ends_at) };
    WindowCount { ends_at, used: state.counted, is_stepped_back: false }
}
