//! Sliding-window counter: two aligned windows, the older one fading out.

#[cfg(feature = "_redis")]
mod lease;
#[cfg(feature = "_redis")]
mod wire;

use std::time::Duration;

use super::aligned::Aligned;
use super::series::Horizon;
use super::{Call, Refund, Strategy};
use crate::clock::{Span, Timestamp};
use crate::decision::{Decision, NEVER, When};
use crate::error::TrypemaError;
use crate::units::window_micros;

/// The previous window fades in this many steps (a power of two, so that weighing is a shift).
const STEPS: u64 = 1 << 20;

/// The largest limit: a count times the steps stays below 2^53, and two counts share a word.
const MAX_LIMIT: u64 = u32::MAX as u64;

/// The two-window estimate; see the [module](super).
#[derive(Debug, Clone, Copy)]
pub struct SlidingWindow;

/// How much fits into the estimated window.
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
    window: Aligned,
}

impl SlidingWindowLimit {
    /// `limit` units per `window`, which is rounded up to whole microseconds.
    pub fn new(limit: u64, window: Duration) -> Result<Self, TrypemaError> {
        if limit == 0 || limit > MAX_LIMIT {
            return Err(TrypemaError::InvalidLimit { given: limit, max: MAX_LIMIT });
        }
        Ok(Self { limit, window: Aligned::new(window_micros(window)?) })
    }

    /// What fits into a window.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The window's length.
    pub fn window(&self) -> Duration {
        Duration::from_micros(self.window.window_us)
    }
}

/// What the counter remembers of a key: the end of a window, what was counted in it and in the one before.
#[derive(Debug, Clone, Copy, Default)]
pub struct SlidingWindowState {
    /// The window's end, and how long it is remembered after that.
    ends_at_and_horizon: u64,
    previous: u32,
    current: u32,
}

impl SlidingWindowState {
    /// Moments take 53 bits, a horizon the other eleven.
    const HORIZON_BITS: u32 = 11;

    fn new(limit: &SlidingWindowLimit, counts: Counts) -> Self {
        let horizon = u64::from(Horizon::at_least(limit.window.window_us).bits());
        Self {
            ends_at_and_horizon: counts.ends_at << Self::HORIZON_BITS | horizon,
            previous: counts.previous as u32,
            current: counts.current as u32,
        }
    }

    fn ends_at(&self) -> u64 {
        self.ends_at_and_horizon >> Self::HORIZON_BITS
    }

    fn horizon_us(&self) -> u64 {
        Horizon::from_bits((self.ends_at_and_horizon & ((1 << Self::HORIZON_BITS) - 1)) as u16).micros()
    }
}

/// The two counts as they stand at some moment.
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

    /// What the previous window still weighs at `now`, rounded up.
    #[inline(always)]
    fn weighed(&self, limit: &SlidingWindowLimit, now: u64) -> u64 {
        if self.previous == 0 {
            return 0;
        }
        let elapsed = limit.window.window_us - (self.ends_at - now).min(limit.window.window_us);
        (self.previous * (STEPS - steps(elapsed, limit.window.window_us))).div_ceil(STEPS)
    }

    /// The first moment at which `cost` fits if nobody else calls; the cost is at most the limit.
    fn fits_at(&self, limit: &SlidingWindowLimit, cost: u64) -> u64 {
        let room = limit.limit - cost;
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

/// What the sliding-window counter found.
#[derive(Debug, Clone, Copy)]
pub struct SlidingWindowOutcome {
    is_admitted: bool,
    cost: u64,
    remaining: u64,
    counts: Counts,
}

impl Strategy for SlidingWindow {
    const NAME: &'static str = "sliding_window";
    type Limit = SlidingWindowLimit;
    type State = SlidingWindowState;
    type Outcome = SlidingWindowOutcome;
    type Decision<'l> = Decision;

    #[inline(always)]
    fn decide(limit: &SlidingWindowLimit, state: &SlidingWindowState, call: Call) -> SlidingWindowOutcome {
        let now = call.now.as_micros();
        let counts = Counts::at(limit, state, now);
        let free = limit.limit.saturating_sub(counts.weighed(limit, now) + counts.current);
        let is_admitted = call.cost <= free || call.cost == 0;
        let remaining = if is_admitted { free.saturating_sub(call.cost) } else { free };
        SlidingWindowOutcome { is_admitted, cost: call.cost, remaining, counts }
    }

    /// The estimate only falls within a window: admitted early is admitted later, and denied late is denied
    /// earlier.
    #[inline(always)]
    fn take_within(
        limit: &SlidingWindowLimit,
        state: &mut SlidingWindowState,
        span: Span,
        cost: u64,
    ) -> Option<SlidingWindowOutcome> {
        let call = Call::new(span.earliest, cost);
        let outcome = Self::decide(limit, state, call);
        let is_certain = outcome.is_admitted
            || span.earliest == span.latest
            || !Self::decide(limit, state, Call::new(span.latest, cost)).is_admitted;
        (is_certain && span.latest.as_micros() < outcome.counts.ends_at).then(|| {
            Self::commit(limit, state, call, &outcome);
            outcome
        })
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
            let cost = if is_counting { call.cost } else { 0 };
            let current = outcome.counts.current + cost;
            *state = SlidingWindowState::new(limit, Counts { current, ..outcome.counts });
        }
    }

    /// Units counted later than this window are counted in it all the same: they may be spent now.
    fn recorded_at(limit: &SlidingWindowLimit, outcome: &SlidingWindowOutcome, call: Call) -> Timestamp {
        let ends_at = outcome.counts.ends_at;
        Timestamp::derived(call.stamp.as_micros().clamp(ends_at - limit.window.window_us, ends_at - 1))
    }

    fn fits(limit: &SlidingWindowLimit, state: &SlidingWindowState, call: Call) -> u64 {
        Self::decide(limit, state, call.costing(0)).remaining.min(call.cost)
    }

    fn refund(limit: &SlidingWindowLimit, state: &mut SlidingWindowState, refund: Refund) -> u64 {
        let mut counts = Counts::at(limit, state, refund.now.as_micros());
        let starts_at = counts.ends_at - limit.window.window_us;
        let recorded = refund.recorded.map(Timestamp::as_micros);
        // Under a limit of another window it would be taken from others.
        let is_aligned = limit.window.start_of(state.ends_at()) == state.ends_at();
        let lies_in =
            |from: u64, to: u64| recorded.is_none_or(|moment| is_aligned && (from..to).contains(&moment));
        let is_previous = lies_in(starts_at.saturating_sub(limit.window.window_us), starts_at);
        let is_current = lies_in(starts_at, counts.ends_at);
        let from_previous = if is_previous { refund.units.min(counts.previous) } else { 0 };
        let from_current = if is_current { (refund.units - from_previous).min(counts.current) } else { 0 };
        counts.previous -= from_previous;
        counts.current -= from_current;
        *state = SlidingWindowState::new(limit, counts);
        from_previous + from_current
    }

    fn memory_us(limit: &SlidingWindowLimit) -> u64 {
        2 * limit.window.window_us
    }

    fn fresh_from(state: &SlidingWindowState) -> Timestamp {
        Timestamp::derived(match (state.previous, state.current) {
            (0, 0) => 0,
            (_, 0) => state.ends_at(),
            (_, _) => state.ends_at() + state.horizon_us(),
        })
    }

    #[inline(always)]
    fn decision(limit: &SlidingWindowLimit, outcome: SlidingWindowOutcome, when: When) -> Decision {
        let not_before = if outcome.is_admitted || outcome.cost > limit.limit {
            NEVER
        } else {
            Timestamp::derived(outcome.counts.fits_at(limit, outcome.cost))
        };
        Decision {
            is_allowed: outcome.is_admitted,
            attempts: None,
            limit: limit.limit,
            remaining: outcome.remaining,
            not_before,
            resets_at: Timestamp::derived(outcome.counts.ends_at),
            when,
        }
    }

    #[inline]
    fn core(decision: &Decision) -> Decision {
        *decision
    }
}

/// How many steps of its window have passed, rounded down.
#[inline]
fn steps(elapsed: u64, window_us: u64) -> u64 {
    match elapsed.checked_mul(STEPS) {
        Some(scaled) => scaled / window_us,
        None => (u128::from(elapsed) * u128::from(STEPS) / u128::from(window_us)) as u64,
    }
}

/// When, counted from the window's start, `step` begins.
fn first_of_step(step: u64, window_us: u64) -> u64 {
    (u128::from(step) * u128::from(window_us)).div_ceil(u128::from(STEPS)) as u64
}

/// The first step at which `count` has faded to `room` or less; `None` if only the window's end does that.
fn fades_to(count: u64, room: u64) -> Option<u64> {
    if count <= room {
        return Some(0);
    }
    let step = STEPS - room * STEPS / count;
    (step < STEPS).then_some(step)
}
