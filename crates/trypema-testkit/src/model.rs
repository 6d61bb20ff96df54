//! Slow, obvious models of the six strategies, written from the specification and not from the library.
//!
//! A model keeps whole lists of what happened and looks through all of them with every call; waits are found
//! by trying moments. It is what the library, on any provider, has to equal step by step.

mod absolute;
mod abuse;
mod buckets;
mod fixed_window;
mod live_instances;
mod rational;
mod sliding_window;
mod suppressed;
mod token_bucket;

use std::fmt::Debug;

pub use absolute::{AbsoluteModel, WindowLimit};
pub use abuse::{AbuseModel, AttemptLimit, Tier, WhileBlocked};
pub use fixed_window::{AlignedLimit, FixedWindowModel};
pub use live_instances::LiveInstances;
pub use sliding_window::SlidingWindowModel;
pub use suppressed::{SheddingLimit, SuppressedModel};
pub use token_bucket::{Bucket, TokenBucketModel};

use crate::random::Random;
use crate::subject::{Answer, Wait};

/// What one key has done, and what is decided from it.
pub trait Model: Clone + Default + Debug {
    /// The name of the strategy.
    const NAME: &'static str;
    /// The limit, as plain numbers.
    type Limit: Clone + Debug + Send + Sync;

    /// Decides `ask` and records it where it counts.
    fn take(&mut self, limit: &Self::Limit, ask: Ask) -> Taken;

    /// The most units, up to `ask.cost`, that are sure to be admitted.
    fn fits(&self, limit: &Self::Limit, ask: Ask) -> u64;

    /// Gives units back; returns how many still counted.
    fn refund(&mut self, limit: &Self::Limit, refund: Refund) -> u64;

    /// How long after being recorded units can still count.
    fn memory_us(limit: &Self::Limit) -> i64;

    /// A limit to test with.
    fn random_limit(random: &mut Random) -> Self::Limit;

    /// Lengths of time at which something changes under `limit`, the longest last.
    fn spans_us(limit: &Self::Limit) -> Vec<u64>;

    /// What fits under `limit` at most.
    fn capacity(limit: &Self::Limit) -> u64;

    /// What [`Model::take`] would answer: take, on a copy that is thrown away.
    fn peek(&self, limit: &Self::Limit, ask: Ask) -> Answer {
        self.clone().take(limit, ask).answer
    }
}

/// One call of a model.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// The present.
    pub now: i64,
    /// When the units count: now, or later for a lease.
    pub stamp: i64,
    /// The units asked for.
    pub cost: u64,
}

/// What became of a call.
#[derive(Debug, Clone)]
pub struct Taken {
    /// The answer.
    pub answer: Answer,
    /// The moment it counts at, if it was admitted: what names it in a refund.
    pub recorded: i64,
}

/// Units to give back.
#[derive(Debug, Clone, Copy)]
pub struct Refund {
    /// The present.
    pub now: i64,
    /// How many.
    pub units: u64,
    /// The moment they were counted at; `None` is the oldest that count.
    pub recorded: Option<i64>,
}

/// The wait from `now` to `then`.
fn wait_until(now: i64, then: Option<i64>) -> Wait {
    then.map_or(Wait::Never, |then| Wait::Micros((then - now) as u64))
}

/// The first moment after `denied_at` and not after `admitted_at` at which `is_admitted`, by halving: once
/// admitted, always admitted if nobody calls.
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
