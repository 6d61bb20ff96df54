//! Fixed window: a count that restarts at every multiple of the window, or with each day, week or month of a
//! calendar.

#[cfg(feature = "calendar")]
mod calendar;
#[cfg(feature = "_redis")]
mod lease;
mod windows;
#[cfg(feature = "_redis")]
mod wire;

use std::time::Duration;

#[cfg(feature = "calendar")]
pub use calendar::{CalendarStart, CalendarWindow, Weekday};
use windows::{Bounds, Windows};

use super::aligned::AlignedWindow;
use super::origin::{CountId, NumberPair, Origin};
use super::{Call, Refund, SharedState, Strategy};
use crate::clock::Timestamp;
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
    windows: Windows,
}

impl FixedWindowLimit {
    /// Returns a limit of `limit` units per `window`, which is rounded up to whole microseconds.
    pub fn new(limit: u64, window: Duration) -> Result<Self, TrypemaError> {
        let windows = Windows::Aligned(AlignedWindow::new(window_micros(window)?));
        Ok(Self { limit: exact_limit(limit)?, windows })
    }

    /// Returns a limit of `limit` units per day, week or month of a calendar.
    ///
    /// A server that shares the count through Redis sends the boundaries of three windows: the one that
    /// contains its present, and those before and after it. Redis picks one of them by its own time, so that
    /// servers whose clocks differ use the same window. See the guarantees for clocks that differ by more.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use trypema::clock::{ManualClock, Timestamp};
    /// use trypema::{CalendarStart, CalendarWindow, FixedWindowLimit, RateLimiter};
    ///
    /// let months = CalendarWindow::new("Europe/Berlin", CalendarStart::Month { day: 1 })?;
    /// let limit = FixedWindowLimit::calendar(100_000, months)?;
    ///
    /// // 30 January 2024, 12:00 in Berlin: February begins in 36 hours.
    /// let clock = Arc::new(ManualClock::starting_at(Timestamp::from_micros(1_706_612_400_000_000)));
    /// let rl = RateLimiter::builder().clock(clock).build()?;
    /// let decision = rl.local().fixed_window().take("ann", &limit, 100);
    /// assert_eq!(decision.reset_after().as_secs(), 36 * 3600);
    /// # Ok::<(), trypema::TrypemaError>(())
    /// ```
    #[cfg(feature = "calendar")]
    pub fn calendar(limit: u64, window: CalendarWindow) -> Result<Self, TrypemaError> {
        Ok(Self { limit: exact_limit(limit)?, windows: Windows::Calendar(window) })
    }

    /// Returns the units that fit into a window.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the length of the window. The windows of a calendar differ: this is 24 hours for days, 7 days
    /// for weeks and 31 days for months.
    pub fn window(&self) -> Duration {
        Duration::from_micros(self.windows.usual_us())
    }

    /// Returns the calendar, if the windows are those of one.
    #[cfg(feature = "calendar")]
    pub fn calendar_window(&self) -> Option<CalendarWindow> {
        match self.windows {
            Windows::Calendar(window) => Some(window),
            Windows::Aligned(_) => None,
        }
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
pub struct FixedWindowState(NumberPair);

impl FixedWindowState {
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
pub struct FixedWindowOutcome {
    is_admitted: bool,
    is_never: bool,
    is_stepped_back: bool,
    used: u64,
    remaining: u64,
    ends_at: u64,
}

impl SharedState<FixedWindowLimit> for FixedWindowState {}

impl Strategy for FixedWindow {
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

    #[inline]
    fn is_admitted(outcome: &FixedWindowOutcome) -> bool {
        outcome.is_admitted
    }

    #[inline(always)]
    fn commit(_: &FixedWindowLimit, state: &mut FixedWindowState, call: Call, outcome: &FixedWindowOutcome) {
        let is_counting = outcome.is_admitted && call.cost > 0;
        if is_counting || outcome.is_stepped_back {
            let units = if is_counting { call.units_to_record(outcome.used, MAX_EXACT) } else { 0 };
            let count = match outcome.used {
                0 => CountId::begun_at(call.now.as_micros()),
                _ => state.0.count(),
            };
            *state = FixedWindowState(NumberPair::new(outcome.ends_at, outcome.used + units, count));
        }
    }

    fn recorded_units(_: &FixedWindowLimit, outcome: &FixedWindowOutcome, call: Call) -> u64 {
        call.units_to_record(outcome.used, MAX_EXACT)
    }

    /// A stamp after this window is moved into it, because the units may be spent now.
    fn recorded_at(limit: &FixedWindowLimit, outcome: &FixedWindowOutcome, call: Call) -> Timestamp {
        let (start, end) = (limit.windows.start_before(outcome.ends_at), outcome.ends_at - 1);
        Timestamp::derived(call.stamp.as_micros().clamp(start, end))
    }

    fn origin(state: &FixedWindowState) -> Origin {
        Origin { window_end: state.ends_at(), count: state.0.count().number() }
    }

    fn available(limit: &FixedWindowLimit, state: &FixedWindowState, call: Call) -> u64 {
        Self::decide(limit, state, call.with_cost(0)).remaining.min(call.cost)
    }

    /// Whatever the limit is now, the count that the units joined has them until it ends.
    fn refund(_: &FixedWindowLimit, state: &mut FixedWindowState, refund: Refund) -> u64 {
        let is_live = refund.now.as_micros() < state.ends_at();
        if !is_live || refund.recorded.is_some_and(|recorded| recorded.origin != Self::origin(state)) {
            return 0;
        }
        let refunded = refund.units.min(state.counted());
        let counted = state.counted() - refunded;
        *state = FixedWindowState(NumberPair::new(state.ends_at(), counted, state.0.count()));
        refunded
    }

    fn retention_us(limit: &FixedWindowLimit) -> u64 {
        limit.windows.longest_us()
    }

    fn fresh_from(state: &FixedWindowState) -> Timestamp {
        Timestamp::derived(if state.counted() == 0 { 0 } else { state.ends_at() })
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
    /// Whether all history counts as happening now, because the clock went back by more than a window, or
    /// because the state's window is none of this calendar's. That is recorded even if the call is denied.
    is_stepped_back: bool,
}

#[inline(always)]
fn count_at(limit: &FixedWindowLimit, state: &FixedWindowState, now: u64) -> WindowCount {
    let Bounds { starts_at, ends_at } = limit.windows.at(now);
    let (known, used) = (state.ends_at(), state.counted());
    if known <= starts_at || used == 0 {
        return WindowCount { ends_at, used: 0, is_stepped_back: false };
    }
    if known <= ends_at {
        return WindowCount { ends_at, used, is_stepped_back: false };
    }
    match limit.windows.later_end(now, known) {
        Some(ends_at) => WindowCount { ends_at, used, is_stepped_back: false },
        None => WindowCount { ends_at, used, is_stepped_back: true },
    }
}
