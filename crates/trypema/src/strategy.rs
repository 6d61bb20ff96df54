//! The algorithms as pure functions: state, limit, time and cost go in; an outcome and the new state come
//! out.
//!
//! Nothing here reads a clock, waits, draws a random number or logs, and no decision takes a lock. A provider
//! stores the state, and calls [`Strategy::decide`] and [`Strategy::commit`]; it knows nothing else about an
//! algorithm. Counts and times are integers below 2^53, which Lua's doubles represent exactly, so that a Lua twin can
//! repeat every step.
//!
//! ```
//! use std::time::Duration;
//! use trypema::clock::Timestamp;
//! use trypema::strategy::{Call, FixedWindow, FixedWindowLimit, Strategy};
//!
//! let limit = FixedWindowLimit::new(2, Duration::from_secs(1))?;
//! let mut state = Default::default();
//! let call = Call::new(Timestamp::from_micros(5_000_000), 2);
//!
//! let outcome = FixedWindow::decide(&limit, &state, call);
//! assert!(FixedWindow::is_admitted(&outcome));
//! FixedWindow::commit(&limit, &mut state, call, &outcome);
//! assert!(!FixedWindow::is_admitted(&FixedWindow::decide(&limit, &state, call)));
//! # Ok::<(), trypema::TrypemaError>(())
//! ```

mod absolute;
mod abuse;
mod aligned;
mod concurrency;
mod fixed_window;
#[cfg(feature = "_redis")]
mod lease;
mod limit;
#[cfg(feature = "_redis")]
mod lua;
mod origin;
pub(crate) mod reservations;
mod series;
mod shared_state;
mod sliding_window;
mod suppressed;
mod token_bucket;
mod window;
#[cfg(feature = "_redis")]
mod wire;

use std::fmt::Debug;

/// The limits, for the root of the crate.
pub(crate) mod limits {
    pub use super::{
        AbsoluteLimit, AbuseLimit, AbuseTier, ConcurrencyLimit, FixedWindowLimit, Limit, SlidingWindowLimit,
        SuppressedLimit, TokenBucketLimits, TokenLimit,
    };
    #[cfg(feature = "calendar")]
    pub use super::{CalendarStart, CalendarWindow, Weekday};
}

pub use absolute::{Absolute, AbsoluteLimit, AbsoluteOutcome, AbsoluteState};
pub use abuse::{Abuse, AbuseLimit, AbuseOutcome, AbuseState, AbuseTier};
#[cfg(feature = "rules")]
pub(crate) use concurrency::RETRY_AFTER;
pub use concurrency::{Concurrency, ConcurrencyLimit, ConcurrencyOutcome, ConcurrencyState};
#[cfg(feature = "calendar")]
pub use fixed_window::{CalendarStart, CalendarWindow, Weekday};
pub use fixed_window::{FixedWindow, FixedWindowLimit, FixedWindowOutcome, FixedWindowState};
pub use limit::Limit;
#[cfg(feature = "_redis")]
pub(crate) use limit::STRATEGIES;
pub(crate) use limit::{Family, InCommon, Make, PerStrategy};
#[cfg(not(feature = "unstable-testkit"))]
pub(crate) use limit::{Listed, for_each_strategy, with_strategy};
#[cfg(feature = "unstable-testkit")]
#[doc(hidden)]
pub use limit::{Listed, for_each_strategy, with_strategy};
pub use origin::Origin;
pub use shared_state::SharedState;
pub use sliding_window::{SlidingWindow, SlidingWindowLimit, SlidingWindowOutcome, SlidingWindowState};
pub use suppressed::{Suppressed, SuppressedLimit, SuppressedOutcome, SuppressedState};
pub use token_bucket::{TokenBucket, TokenBucketLimits, TokenBucketOutcome, TokenBucketState, TokenLimit};

#[cfg(all(feature = "_redis", not(feature = "unstable-testkit")))]
pub(crate) use lease::{Leasable, LeaseCall, LeaseGrant, LeaseParams, LeasedUnits, LocalCall};
#[cfg(all(feature = "_redis", feature = "unstable-testkit"))]
#[doc(hidden)]
pub use lease::{Leasable, LeaseCall, LeaseGrant, LeaseParams, LeasedUnits, LocalCall};
#[cfg(feature = "_redis")]
pub(crate) use lua::{LUA_NUMBERS, LUA_PARTS, LuaPart};
#[cfg(all(feature = "_redis", not(feature = "unstable-testkit")))]
pub(crate) use wire::Wire;
#[cfg(all(feature = "_redis", feature = "unstable-testkit"))]
#[doc(hidden)]
pub use wire::Wire;
#[cfg(feature = "_redis")]
pub(crate) use wire::{LUA_SOURCES, LuaSource, ReplyReader, put_count, put_number};

pub(crate) use window::WindowOptions;
#[cfg(not(feature = "unstable-testkit"))]
pub(crate) use window::WindowStrategy;
#[cfg(feature = "unstable-testkit")]
#[doc(hidden)]
pub use window::WindowStrategy;

use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionTime};

/// One request to an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The time of the decision. Units that have left the window by then no longer count.
    pub now: Timestamp,
    /// The time at which the units are counted: `now`, or later for leased units, which may be spent until
    /// then.
    pub stamp: Timestamp,
    /// The units that are recorded if the call is admitted.
    pub cost: u64,
    /// The units that must be free for the call to be admitted: the cost, unless the call is
    /// [postpaid](Call::postpaid) or a [debit](Call::debit).
    pub needed: u64,
}

impl Call {
    /// Returns a call that is decided and counted at `now`.
    pub const fn new(now: Timestamp, cost: u64) -> Self {
        Self { now, stamp: now, cost, needed: cost }
    }

    /// Returns the same call, postpaid: it is admitted if one unit is free, even if its cost is 0. A cost
    /// that does not fit is recorded all the same, and overdraws the limit.
    #[must_use]
    pub const fn postpaid(self) -> Self {
        Self { needed: 1, ..self }
    }

    /// Returns the same call as a debit, which is always admitted. A cost that does not fit overdraws the
    /// limit.
    #[must_use]
    pub const fn debit(self) -> Self {
        Self { needed: 0, ..self }
    }

    /// Returns the same call, counted at `stamp` if that is later than `now`.
    pub fn with_stamp(self, stamp: Timestamp) -> Self {
        Self { stamp: stamp.max(self.now), ..self }
    }

    /// Returns the same call with another cost, all of which must be free.
    pub const fn with_cost(self, cost: u64) -> Self {
        Self { cost, needed: cost, ..self }
    }

    /// Returns the units to record if `used` units count already: the cost, but in total at most `most`. A
    /// cost that fits is not reduced.
    #[inline(always)]
    fn units_to_record(&self, used: u64, most: u64) -> u64 {
        if self.needed < self.cost { self.cost.min(most.saturating_sub(used)) } else { self.cost }
    }
}

/// The units that must be free for a cost to be spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payment {
    /// The whole cost.
    Prepaid,
    /// One unit, see [`Call::postpaid`].
    Postpaid,
    /// None, see [`Call::debit`].
    Debit,
}

/// What a decision does with its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(any(feature = "_redis", feature = "rules")),
    allow(dead_code, reason = "takes of one key need no list")
)]
pub(crate) enum Effect {
    /// Spends it, if enough units are free. A denial is recorded as far as the strategy counts denials.
    Take,
    /// Nothing.
    Peek,
    /// Spends nothing, but records the observation or denial that the strategy counts when another check denies the
    /// request.
    DeniedElsewhere,
}

/// A cost, and the units that must be free for it to be spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spend {
    pub(crate) cost: u64,
    pub(crate) payment: Payment,
}

impl Spend {
    /// A spend that is always admitted, and whose outcome says what is left.
    pub(crate) const NOTHING: Self = Self { cost: 0, payment: Payment::Debit };

    /// Returns the call that spends this at `now`.
    #[inline(always)]
    pub(crate) fn at(self, now: Timestamp) -> Call {
        let call = Call::new(now, self.cost);
        match self.payment {
            Payment::Prepaid => call,
            Payment::Postpaid => call.postpaid(),
            Payment::Debit => call.debit(),
        }
    }
}

impl From<u64> for Spend {
    #[inline(always)]
    fn from(cost: u64) -> Self {
        Self { cost, payment: Payment::Prepaid }
    }
}

/// Units to refund.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refund {
    /// The time of the refund.
    pub now: Timestamp,
    /// The number of units.
    pub units: u64,
    /// Where the units were recorded. `None` refunds the oldest units that still count.
    pub recorded: Option<Recorded>,
}

/// When units were recorded, and in which count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// The time, as [`Strategy::recorded_at`] returned it.
    pub at: Timestamp,
    /// The count that the units joined, as [`Strategy::origin`] returned it.
    pub origin: Origin,
}

/// Units that a counter recorded.
#[cfg(feature = "rules")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordedUnits {
    pub(crate) recorded: Recorded,
    pub(crate) units: u64,
}

/// An algorithm. The trait is sealed: only the types of this module implement it.
pub trait Strategy: limit::Sealed + 'static {
    /// The strategy's name in events and traces. [`Wire::SUFFIX`] is its name in keys of Redis.
    const NAME: &'static str = Self::ROW.name;
    /// Whether a denied take is recorded, so that repeated denied calls make later decisions stricter.
    const COUNTS_DENIALS: bool = false;
    /// Whether an admitted take that another limit denies is recorded.
    const COUNTS_DENIED_ELSEWHERE: bool = false;
    /// Whether a unit is an attempt: it counts once it was made, whatever becomes of the request. A check before the
    /// attempt costs nothing and only asks whether the key is blocked.
    const COUNTS_ATTEMPTS: bool = false;
    /// Whether units are held until they are released. The state is then itself a table of reservations, so there is
    /// none beside it, and nothing counts afterwards.
    const IS_HELD: bool = false;
    /// The reason why a rule with this strategy cannot be postpaid, if it cannot.
    const AGAINST_POSTPAID: Option<&'static str> = None;
    /// The limit. The caller passes it with every call, so that changing it keeps the history.
    type Limit: Clone + Debug + PartialEq + Send + Sync;
    /// The stored state of one key. The default is the state of a key that was never used.
    type State: SharedState<Self::Limit>;
    /// The raw numbers of a decision, as [`Strategy::decide`] computes them.
    type Outcome: Clone + Debug + Send;
    /// The decision that a caller receives. It may borrow the limit, to compute rarely used values only on
    /// request.
    type Decision<'l>: Debug;

    /// Decides `call` without changing the state.
    fn decide(limit: &Self::Limit, state: &Self::State, call: Call) -> Self::Outcome;

    /// Decides a take of `cost` at `now`, and commits the outcome. Strategies override this where both together are
    /// quicker than [`Strategy::decide`] and [`Strategy::commit`].
    #[inline(always)]
    fn take(limit: &Self::Limit, state: &mut Self::State, now: Timestamp, cost: u64) -> Self::Outcome {
        let call = Call::new(now, cost);
        let outcome = Self::decide(limit, state, call);
        Self::commit(limit, state, call, &outcome);
        outcome
    }

    /// Whether `outcome` admits the call.
    fn is_admitted(outcome: &Self::Outcome) -> bool;

    /// Records `outcome`, which [`Strategy::decide`] returned for the same arguments. A denial changes the
    /// state only if the strategy counts denials, or if the clock went back by more than a window.
    fn commit(limit: &Self::Limit, state: &mut Self::State, call: Call, outcome: &Self::Outcome);

    /// Records a call that `outcome` would have admitted, but that was denied for another reason. This
    /// changes the state only if the strategy counts denials.
    fn record_denied_elsewhere(
        limit: &Self::Limit,
        state: &mut Self::State,
        call: Call,
        outcome: &Self::Outcome,
    ) {
        let _ = (limit, state, call, outcome);
    }

    /// Returns the time at which committing the admitted `outcome` records its units, for
    /// [`Refund::recorded`].
    fn recorded_at(limit: &Self::Limit, outcome: &Self::Outcome, call: Call) -> Timestamp;

    /// Returns the count that the units of the last commit joined, for [`Refund::recorded`].
    #[inline(always)]
    fn origin(state: &Self::State) -> Origin {
        let _ = state;
        Origin::default()
    }

    /// Returns the units that committing the admitted `outcome` records: the cost of the call, unless it
    /// overdraws the limit by more than the state can count.
    fn recorded_units(limit: &Self::Limit, outcome: &Self::Outcome, call: Call) -> u64 {
        let _ = (limit, outcome);
        call.cost
    }

    /// Returns the largest number of units, up to `call.cost`, that is certain to be admitted now.
    fn available(limit: &Self::Limit, state: &Self::State, call: Call) -> u64;

    /// Refunds units. Returns the number of them that still counted. Units whose count has ended, or has lost a
    /// part since, are not refunded: they could be those of other calls.
    fn refund(limit: &Self::Limit, state: &mut Self::State, refund: Refund) -> u64;

    /// Returns the time in microseconds during which recorded units can still count.
    fn retention_us(limit: &Self::Limit) -> u64;

    /// Returns the time from which `state` decides like a fresh one, so that it may be forgotten.
    fn fresh_from(state: &Self::State) -> Timestamp;

    /// Returns the decision for `outcome`, which was decided at `decided_at`.
    fn decision(limit: &Self::Limit, outcome: Self::Outcome, decided_at: DecisionTime) -> Self::Decision<'_>;

    /// Returns the part of a decision that all strategies have in common.
    fn core(decision: &Self::Decision<'_>) -> Decision;
}
