//! Slow, obvious models of all strategies, written from the specification and not from the library.
//!
//! A model keeps complete lists of events and scans them on every call. It finds waits by trying out times.
//! The library has to give the same answers on every provider, step by step.

mod absolute;
mod abuse;
mod buckets;
mod calendar;
mod concurrency;
mod fixed_window;
mod live_instances;
mod rational;
mod sliding_window;
mod suppressed;
mod token_bucket;

use std::fmt::Debug;

pub use absolute::{AbsoluteModel, WindowLimit};
pub use abuse::{AbuseModel, AttemptLimit, Tier, WhileBlocked};
pub use calendar::{CalendarLimit, CalendarModel, ModelWindows};
pub use concurrency::{ConcurrencyModel, HoldLimit};
pub use fixed_window::{AlignedLimit, FixedWindowModel};
pub use live_instances::LiveInstances;
pub use sliding_window::SlidingWindowModel;
pub use suppressed::{SheddingLimit, SuppressedModel};
pub use token_bucket::{Bucket, TokenBucketModel};

use crate::random::Random;
use crate::subject::{Answer, Wait};

/// The history of one key, and the decisions that follow from it.
pub trait Model: Clone + Default + Debug {
    /// The name of the strategy.
    const NAME: &'static str;
    /// Whether a denied call is admitted as soon as its wait has passed, if no other call is made. Concurrency
    /// has no exact wait: holders release their units at any time, so its callers ask again soon.
    const IS_WAIT_EXACT: bool = true;
    /// The limit, as plain numbers.
    type Limit: Clone + Debug + Send + Sync;

    /// Decides `ask`, and records it if it counts.
    fn take(&mut self, limit: &Self::Limit, ask: Ask) -> Taken;

    /// Returns the most units, up to `ask.cost`, that are sure to be admitted.
    fn fits(&self, limit: &Self::Limit, ask: Ask) -> u64;

    /// Refunds units. Returns the number of them that still counted.
    fn refund(&mut self, limit: &Self::Limit, refund: Refund) -> u64;

    /// Returns the time for which units can count after they were recorded.
    fn memory_us(limit: &Self::Limit) -> i64;

    /// Returns a limit to test with.
    fn random_limit(random: &mut Random) -> Self::Limit;

    /// Returns durations at which something changes under `limit`, the longest last.
    fn spans_us(limit: &Self::Limit) -> Vec<u64>;

    /// Returns the maximum number of units under `limit`.
    fn capacity(limit: &Self::Limit) -> u64;

    /// Returns the answer of [`Model::take`] without recording it, by a take on a copy.
    fn peek(&self, limit: &Self::Limit, ask: Ask) -> Answer {
        self.clone().take(limit, ask).answer
    }
}

/// One call of a model.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// The current time.
    pub now: i64,
    /// The time from which the units count: now, or later for a lease.
    pub stamp: i64,
    /// The number of units that are recorded if the call is admitted.
    pub cost: u64,
    /// The number of units that must be free: the cost, one for a postpaid call, none for a debit.
    pub needed: u64,
}

impl Ask {
    /// Returns the same call for another cost, all of which must be free.
    pub(crate) fn costing(self, cost: u64) -> Self {
        Self { cost, needed: cost, ..self }
    }
}

/// The largest number of units that is counted, and the last time.
const MOST: u64 = (1 << 53) - 1;

/// The result of a take.
#[derive(Debug, Clone)]
pub struct Taken {
    /// The answer.
    pub answer: Answer,
    /// The time at which the units count, if they were admitted. It identifies them in a refund.
    pub recorded: i64,
    /// The units that count, if they were admitted: less than the cost if it overdraws the limit by more than can
    /// be counted.
    pub units: u64,
    /// The count that the units joined.
    pub origin: Origin,
}

/// Identifies the count that units joined: their refund must not come out of another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Origin {
    /// The end of the window in which the units were counted, if there are windows.
    pub window_end: i64,
    /// The time at which the count began, and one more after each change that may have forgotten a part of it.
    pub count: i64,
}

/// A refund.
#[derive(Debug, Clone, Copy)]
pub struct Refund {
    /// The current time.
    pub now: i64,
    /// The number of units.
    pub units: u64,
    /// The time at which the units were counted; `None` for the oldest that count.
    pub recorded: Option<i64>,
    /// The count that they joined. It has no meaning without a time.
    pub origin: Origin,
}

/// Returns the wait from `now` to `then`.
fn wait_until(now: i64, then: Option<i64>) -> Wait {
    then.map_or(Wait::Never, |then| Wait::Micros((then - now) as u64))
}

/// Returns the first time after `denied_at`, and not after `admitted_at`, at which `is_admitted` holds.
/// Uses bisection: without other calls, a cost that is admitted at one time is admitted at all later ones.
fn first_moment(denied_at: i64, admitted_at: i64, is_admitted: impl Fn(i64) -> bool) -> i64 {
    let (mut denied, mut admitted) = (denied_at, admitted_at);
    while admitted - denied > 1 {
        let middle = denied + (admitted - denied) / 2;
        if is_admitted(middle) {
            admitted = middle;
        } else {
            denied = middle;
        }
    }
    admitted
}

/// Runs the macro in brackets with the tokens behind it and a row for each model: a name and the type. Each strategy has
/// one, and fixed windows of a calendar have another one.
#[macro_export]
macro_rules! for_each_model {
    ([$($callback:tt)+] $($arguments:tt)*) => {
        $crate::strategies::for_each_strategy! { [$crate::for_each_model] @[$($callback)+] [$($arguments)*] }
    };
    (@[$($callback:tt)+] [$($arguments:tt)*]
     $($number:literal $type:ident $name:ident $limit:ident;)+) => {
        $($callback)+! {
            $($arguments)*
            $($name <$crate::strategies::$type as $crate::subject::Modelled>::Model;)+
            calendar_window $crate::model::CalendarModel;
        }
    };
}
