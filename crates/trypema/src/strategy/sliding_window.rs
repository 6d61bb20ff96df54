//! Sliding-window counter: an estimate from two aligned windows, in which the weight of the previous one
//! falls to zero.

#[cfg(feature = "_redis")]
mod lease;
#[cfg(feature = "_redis")]
mod wire;

use std::time::Duration;

use super::aligned::AlignedWindow;
use super::origin::{CountId, NumberPair, Origin};
use super::{Call, Recorded, Refund, SharedState, Strategy};
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionTime, NEVER};
use crate::error::TrypemaError;
use crate::units::window_micros;

/// The number of steps in which the weight of the previous window falls. A power of two makes weighing a
/// shift.
pub(super) const STEPS: u64 = 1 << 20;

/// The largest limit, and the number at which the count of an overdrawn window saturates. A count times the
/// number of steps stays below 2^53, and two counts share a word.
const MAX_LIMIT: u64 = u32::MAX as u64;

/// The two-window estimate; see the [module](super).
#[derive(Debug, Clone, Copy)]
pub struct SlidingWindow;

/// The units that fit into the estimated window.
///
/// ```
/// use std::time::Duration;
/// use trypema::SlidingWindowLimit;
///
/// let limit = SlidingWindowLimit::new(100, Duration::from_secs(60))?;
/// assert_eq!(limit.limit(), 100);
/// assert!(SlidingWindowLimit::new(1 << 32, Duration::from_secs(60)).is_err());
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindowLimit {
    limit: u64,
    window: AlignedWindow,
}

impl SlidingWindowLimit {
    /// Returns a limit of `limit` units per `window`, which is rounded up to whole microseconds.
    pub fn new(limit: u64, window: Duration) -> Result<Self, TrypemaError> {
        if limit == 0 || limit > MAX_LIMIT {
            return Err(TrypemaError::InvalidLimit { given: limit, max: MAX_LIMIT });
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

/// The sliding-window counter's state of a key: the end of a window, its count, and the count of the window
/// before it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SlidingWindowState {
    /// The end of the window, and its length. The number of the count is that of the windows of equal length that
    /// followed each other without a gap: the end of a window tells which of them it is.
    window: NumberPair,
    previous: u32,
    current: u32,
}

impl SlidingWindowState {
    fn new(limit: &SlidingWindowLimit, counts: Counts, count: CountId) -> Self {
        Self {
            window: NumberPair::new(counts.ends_at, limit.window.window_us, count),
            previous: counts.previous as u32,
            current: counts.current as u32,
        }
    }

    #[inline(always)]
    fn ends_at(&self) -> u64 {
        self.window.first()
    }

    #[inline(always)]
    fn window_us(&self) -> u64 {
        self.window.second()
    }

    /// Returns the count that units join which are recorded by `limit` at `now`, when `counts` are those of this state.
    #[inline(always)]
    fn count_after(&self, limit: &SlidingWindowLimit, counts: &Counts, now: u64) -> CountId {
        if counts.previous + counts.current == 0 {
            return CountId::begun_at(now);
        }
        let is_moved = self.window_us() != limit.window.window_us || counts.is_stepped_back;
        if is_moved { self.window.count().next() } else { self.window.count() }
    }
}

/// The two counts at some moment.
#[derive(Debug, Clone, Copy)]
struct Counts {
    ends_at: u64,
    previous: u64,
    current: u64,
    /// Whether the clock went back by more than a window, so that all history counts as happening now.
    is_stepped_back: bool,
}

impl Counts {
    #[inline(always)]
    fn at(limit: &SlidingWindowLimit, state: &SlidingWindowState, now: u64) -> Self {
        let starts_at = limit.window.start_of(now);
        let ends_at = starts_at + limit.window.window_us;
        let (previous, current) = (u64::from(state.previous), u64::from(state.current));
        let known = state.ends_at();
        if known + limit.window.window_us <= starts_at || previous + current == 0 {
            Self { ends_at, previous: 0, current: 0, is_stepped_back: false }
        } else if known <= starts_at {
            Self { ends_at, previous: current, current: 0, is_stepped_back: false }
        } else if known > now + 2 * limit.window.window_us {
            let current = (previous + current).min(MAX_LIMIT);
            Self { ends_at, previous: 0, current, is_stepped_back: true }
        } else {
            let ends_at = if known <= ends_at { ends_at } else { limit.window.end_from(known) };
            Self { ends_at, previous, current, is_stepped_back: false }
        }
    }

    /// Returns the weighted count of the previous window at `now`, rounded up.
    #[inline(always)]
    fn weighted_previous(&self, limit: &SlidingWindowLimit, now: u64) -> u64 {
        if self.previous == 0 {
            return 0;
        }
        let elapsed = limit.window.window_us - (self.ends_at - now).min(limit.window.window_us);
        (self.previous * (STEPS - steps(elapsed, limit.window.window_us))).div_ceil(STEPS)
    }

    /// Returns the first time at which `needed` units, at most the limit, are free if no other call is made.
    fn fits_at(&self, limit: &SlidingWindowLimit, needed: u64) -> u64 {
        let room = limit.limit - needed;
        let starts_at = self.ends_at - limit.window.window_us;
        let this_window = room.checked_sub(self.current).and_then(|room| fades_to(self.previous, room));
        if let Some(step) = this_window {
            return starts_at + first_of_step(step, limit.window.window_us);
        }
        match fades_to(self.current, room) {
            Some(step) => self.ends_at + first_of_step(step, limit.window.window_us),
            None => self.ends_at + limit.window.window_us,
        }
    }
}

/// The outcome of the sliding-window counter.
#[derive(Debug, Clone, Copy)]
pub struct SlidingWindowOutcome {
    is_admitted: bool,
    needed: u64,
    remaining: u64,
    counts: Counts,
}

impl SharedState<SlidingWindowLimit> for SlidingWindowState {}

impl Strategy for SlidingWindow {
    type Limit = SlidingWindowLimit;
    type State = SlidingWindowState;
    type Outcome = SlidingWindowOutcome;
    type Decision<'l> = Decision;

    #[inline(always)]
    fn decide(limit: &SlidingWindowLimit, state: &SlidingWindowState, call: Call) -> SlidingWindowOutcome {
        let now = call.now.as_micros();
        let counts = Counts::at(limit, state, now);
        let free = limit.limit.saturating_sub(counts.weighted_previous(limit, now) + counts.current);
        let is_admitted = call.needed <= free;
        let remaining = if is_admitted { free.saturating_sub(call.cost) } else { free };
        SlidingWindowOutcome { is_admitted, needed: call.needed, remaining, counts }
    }

    #[inline]
    fn is_admitted(outcome: &SlidingWindowOutcome) -> bool {
        outcome.is_admitted
    }

    #[inline(always)]
    fn commit(
        limit: &SlidingWindowLimit,
        state: &mut SlidingWindowState,
        call: Call,
        outcome: &SlidingWindowOutcome,
    ) {
        let is_counting = outcome.is_admitted && call.cost > 0;
        if is_counting || outcome.counts.is_stepped_back {
            let current = outcome.counts.current;
            let units = if is_counting { call.units_to_record(current, MAX_LIMIT) } else { 0 };
            let count = state.count_after(limit, &outcome.counts, call.now.as_micros());
            let counts = Counts { current: current + units, ..outcome.counts };
            *state = SlidingWindowState::new(limit, counts, count);
        }
    }

    fn recorded_units(_: &SlidingWindowLimit, outcome: &SlidingWindowOutcome, call: Call) -> u64 {
        call.units_to_record(outcome.counts.current, MAX_LIMIT)
    }

    /// A stamp after this window is moved into it, because the units may be spent now.
    fn recorded_at(limit: &SlidingWindowLimit, outcome: &SlidingWindowOutcome, call: Call) -> Timestamp {
        let ends_at = outcome.counts.ends_at;
        Timestamp::derived(call.stamp.as_micros().clamp(ends_at - limit.window.window_us, ends_at - 1))
    }

    fn origin(state: &SlidingWindowState) -> Origin {
        Origin { window_end: state.ends_at(), count: state.window.count().number() }
    }

    fn available(limit: &SlidingWindowLimit, state: &SlidingWindowState, call: Call) -> u64 {
        Self::decide(limit, state, call.with_cost(0)).remaining.min(call.cost)
    }

    /// Subtracts from the state as it is, whatever the windows are now: they only tell what still counts.
    fn refund(limit: &SlidingWindowLimit, state: &mut SlidingWindowState, refund: Refund) -> u64 {
        let (starts_at, ends_at) = (limit.window.start_of(refund.now.as_micros()), state.ends_at());
        let is_in = |window_end: u64| {
            refund.recorded.is_none_or(|Recorded { origin, .. }| {
                (origin.window_end, origin.count) == (window_end, state.window.count().number())
            })
        };
        // The previous window's units no longer count once another one has begun, the current one's after the next.
        let is_previous = ends_at > starts_at && is_in(ends_at.saturating_sub(state.window_us()));
        let is_current = ends_at + limit.window.window_us > starts_at && is_in(ends_at);
        let of = |is_meant: bool, counted: u32| if is_meant { u64::from(counted) } else { 0 };
        let from_previous = refund.units.min(of(is_previous, state.previous));
        let from_current = (refund.units - from_previous).min(of(is_current, state.current));
        state.previous -= from_previous as u32;
        state.current -= from_current as u32;
        from_previous + from_current
    }

    fn retention_us(limit: &SlidingWindowLimit) -> u64 {
        2 * limit.window.window_us
    }

    fn fresh_from(state: &SlidingWindowState) -> Timestamp {
        Timestamp::derived(match (state.previous, state.current) {
            (0, 0) => 0,
            (_, 0) => state.ends_at(),
            (_, _) => state.ends_at() + state.window_us(),
        })
    }

    #[inline(always)]
    fn decision(
        limit: &SlidingWindowLimit,
        outcome: SlidingWindowOutcome,
        decided_at: DecisionTime,
    ) -> Decision {
        let not_before = if outcome.is_admitted || outcome.needed > limit.limit {
            NEVER
        } else {
            Timestamp::derived(outcome.counts.fits_at(limit, outcome.needed))
        };
        Decision {
            is_allowed: outcome.is_admitted,
            attempts: None,
            limit: limit.limit,
            remaining: outcome.remaining,
            not_before,
            resets_at: Timestamp::derived(outcome.counts.ends_at),
            decided_at,
        }
    }

    #[inline]
    fn core(decision: &Decision) -> Decision {
        *decision
    }
}

/// Returns the number of steps of the window that have passed, rounded down.
#[inline]
fn steps(elapsed: u64, window_us: u64) -> u64 {
    match elapsed.checked_mul(STEPS) {
        Some(scaled) => scaled / window_us,
        None => (u128::from(elapsed) * u128::from(STEPS) / u128::from(window_us)) as u64,
    }
}

/// Returns the time from the start of the window to the beginning of `step`.
fn first_of_step(step: u64, window_us: u64) -> u64 {
    (u128::from(step) * u128::from(window_us)).div_ceil(u128::from(STEPS)) as u64
}

/// Returns the first step at which the weighted `count` is at most `room`. Returns `None` if that is not
/// before the end of the window.
fn fades_to(count: u64, room: u64) -> Option<u64> {
    if count <= room {
        return Some(0);
    }
    let step = STEPS - room * STEPS / count;
    (step < STEPS).then_some(step)
}
