//! The six algorithms, pure: state, limit, time and cost go in; a decision and the new state come out.
//!
//! Nothing here reads a clock, takes a lock, waits, draws a random number or logs. Providers call
//! [`Strategy::decide`] and [`Strategy::commit`] and keep the state in between; that is all they know of an
//! algorithm. Everything is integer arithmetic below 2^53, so that a Lua twin can repeat it line by line.
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
mod fixed_window;
#[cfg(feature = "_redis")]
mod lease;
mod limit;
mod series;
mod sliding_window;
mod suppressed;
mod token_bucket;
#[cfg(feature = "_redis")]
mod wire;

use std::fmt::Debug;

pub use absolute::{Absolute, AbsoluteLimit, AbsoluteOutcome, AbsoluteState};
pub use abuse::{Abuse, AbuseLimit, AbuseOutcome, AbuseState, AbuseTier};
pub use fixed_window::{FixedWindow, FixedWindowLimit, FixedWindowOutcome, FixedWindowState};
pub use limit::Limit;
pub(crate) use limit::{LimitOf, with_strategy};
pub use sliding_window::{SlidingWindow, SlidingWindowLimit, SlidingWindowOutcome, SlidingWindowState};
pub use suppressed::{Suppressed, SuppressedLimit, SuppressedOutcome, SuppressedState};
pub use token_bucket::{TokenBucket, TokenBucketLimits, TokenBucketOutcome, TokenBucketState, TokenLimit};

#[cfg(all(feature = "_redis", not(feature = "unstable-testkit")))]
pub(crate) use lease::{Back, Leasable, LeaseAsk, LeaseCall, Leased, Turn};
#[cfg(all(feature = "_redis", feature = "unstable-testkit"))]
#[doc(hidden)]
pub use lease::{Back, Leasable, LeaseAsk, LeaseCall, Leased, Turn};
#[cfg(all(feature = "_redis", not(feature = "unstable-testkit")))]
pub(crate) use wire::Wire;
#[cfg(all(feature = "_redis", feature = "unstable-testkit"))]
#[doc(hidden)]
pub use wire::Wire;
#[cfg(feature = "_redis")]
pub(crate) use wire::{Facts, LUA, Lua, put_count, put_number};

use crate::clock::{Span, Timestamp};
use crate::decision::{Decision, When};

/// One call of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The time at which it is decided: what has left by now no longer counts.
    pub now: Timestamp,
    /// The time its units are counted at: `now`, or later for units that may be spent until then.
    pub stamp: Timestamp,
    /// The units it asks for.
    pub cost: u64,
}

impl Call {
    /// A call that is decided and counted at `now`.
    pub const fn new(now: Timestamp, cost: u64) -> Self {
        Self { now, stamp: now, cost }
    }

    /// The same call, counted at `stamp` if that is later.
    pub fn stamped(self, stamp: Timestamp) -> Self {
        Self { stamp: stamp.max(self.now), ..self }
    }

    /// The same call for another cost.
    pub const fn costing(self, cost: u64) -> Self {
        Self { cost, ..self }
    }
}

/// Units to give back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refund {
    /// The present.
    pub now: Timestamp,
    /// How many.
    pub units: u64,
    /// Where [`Strategy::recorded_at`] said that they are; `None` takes the oldest that still count.
    pub recorded: Option<Timestamp>,
}

/// An algorithm. Implemented by the six types of this module and by nothing else.
pub trait Strategy: sealed::Sealed + Sized + 'static {
    /// Its name in keys, events and traces.
    const NAME: &'static str;
    /// Whether a denied take is recorded, so that asking in vain makes later calls stricter.
    const COUNTS_DENIALS: bool = false;
    /// What is allowed: given with every call, so that changing it keeps the history.
    type Limit: Clone + Debug + PartialEq + Send + Sync;
    /// What is remembered of a key; the default is a key never seen.
    type State: Clone + Debug + Default + Send;
    /// What deciding found, as the numbers it is made of.
    type Outcome: Clone + Debug + Send;
    /// What a caller is told; it may borrow the limit to work out later what few callers ask for.
    type Decision<'l>: Debug;

    /// What this call would get; nothing is changed.
    fn decide(limit: &Self::Limit, state: &Self::State, call: Call) -> Self::Outcome;

    /// Whether the exact time is sure to matter, so that [`Strategy::take_within`] need not be tried.
    #[inline]
    fn needs_exact_time(limit: &Self::Limit, state: &Self::State, cost: u64) -> bool {
        let _ = (limit, state, cost);
        false
    }

    /// Decides and commits with a time that is only known to lie in `span`, if every moment of it gives the
    /// same answer, or if the answer can be recorded so that it is stricter than any of them. `None`, with
    /// nothing changed, asks for the exact time.
    fn take_within(
        limit: &Self::Limit,
        state: &mut Self::State,
        span: Span,
        cost: u64,
    ) -> Option<Self::Outcome>;

    /// Corrects what [`Strategy::take_within`] recorded later than it was, now that the exact time is known:
    /// what was taken was not taken after `now`.
    #[inline(always)]
    fn sharpen(state: &mut Self::State, now: Timestamp) {
        let _ = (state, now);
    }

    /// Whether `outcome` lets the call pass.
    fn is_admitted(outcome: &Self::Outcome) -> bool;

    /// Records `outcome`, which [`Strategy::decide`] gave for the same arguments. A denial changes nothing,
    /// except what the algorithm counts of denials, and time that went back by more than a window.
    fn commit(limit: &Self::Limit, state: &mut Self::State, call: Call, outcome: &Self::Outcome);

    /// Records that a call, of which `outcome` alone would have let it pass, was not let pass for another reason.
    /// That changes nothing, except what the algorithm counts of denials.
    fn forgo(limit: &Self::Limit, state: &mut Self::State, call: Call, outcome: &Self::Outcome) {
        let _ = (limit, state, call, outcome);
    }

    /// Where committing an admitted `outcome` records it, for [`Refund::recorded`].
    fn recorded_at(limit: &Self::Limit, outcome: &Self::Outcome, call: Call) -> Timestamp;

    /// Lets `state`, made under another limit, go on under `limit` where that is remembered in it.
    fn adopt(limit: &Self::Limit, state: &mut Self::State) {
        let _ = (limit, state);
    }

    /// A copy of `state` of bounded size. Under `limit` it decides the same at `now`, and never more loosely
    /// later.
    fn condensed(limit: &Self::Limit, state: &Self::State, now: Timestamp) -> Self::State {
        let _ = (limit, now);
        state.clone()
    }

    /// Lets `state` be blocked at least as long as `other`.
    fn keep_blocks_of(state: &mut Self::State, other: &Self::State) {
        let _ = (state, other);
    }

    /// The most units, up to `call.cost`, that are sure to be admitted now.
    fn fits(limit: &Self::Limit, state: &Self::State, call: Call) -> u64;

    /// Gives units back; returns how many still counted.
    fn refund(limit: &Self::Limit, state: &mut Self::State, refund: Refund) -> u64;

    /// How long after being recorded units can still count, in microseconds.
    fn memory_us(limit: &Self::Limit) -> u64;

    /// From when on `state` decides like a fresh one: then it may be forgotten.
    fn fresh_from(state: &Self::State) -> Timestamp;

    /// What a caller is told of `outcome`, decided at `when`.
    fn decision(limit: &Self::Limit, outcome: Self::Outcome, when: When) -> Self::Decision<'_>;

    /// The part of a decision that all strategies share.
    fn core(decision: &Self::Decision<'_>) -> Decision;
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::Absolute {}
    impl Sealed for super::Abuse {}
    impl Sealed for super::FixedWindow {}
    impl Sealed for super::SlidingWindow {}
    impl Sealed for super::Suppressed {}
    impl Sealed for super::TokenBucket {}
}
