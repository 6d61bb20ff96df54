//! Subjects of random traces: anything that has the verbs and answers in plain numbers.

mod library;
mod local;
mod modelled;
#[cfg(feature = "redis")]
mod redis;

use trypema::BlockScope;

pub(crate) use library::micros;
pub use library::{LibrarySubject, Provides};
pub use local::{LocalStrategy, LocalSubject, Modelled, OnLocal};
pub use modelled::ModelSubject;
#[cfg(feature = "redis")]
pub use redis::{HybridStrategy, OnRedis, RedisStrategy, RedisSubject};

/// A provider, or a model of one, as a trace uses it.
///
/// [`Subject::set_clock`] sets the time. Receipts are numbered in the order in which [`Subject::take_with_receipt`]
/// returns them, so that two subjects which agree number them alike.
pub trait Subject {
    /// The limit, as plain numbers.
    type Limit;
    /// Whether it has postpaid takes and debits.
    const CAN_OVERDRAW: bool = true;

    /// Sets the clock, forward or back.
    fn set_clock(&mut self, now_us: u64);
    /// Takes `cost` if it fits.
    fn take(&mut self, key: &str, limit: &Self::Limit, cost: u64) -> Answer;
    /// Returns the answer that [`Subject::take`] would give.
    fn peek(&mut self, key: &str, limit: &Self::Limit, cost: u64) -> Answer;
    /// Takes as much of `cost` as fits.
    fn take_up_to(&mut self, key: &str, limit: &Self::Limit, cost: u64) -> UpTo;
    /// Takes `cost` for units that may be spent until `lease_us` from now, and keeps the receipt.
    fn take_with_receipt(&mut self, key: &str, limit: &Self::Limit, cost: u64, lease_us: u64) -> Reserved;
    /// Takes `cost` if one unit is free.
    fn take_postpaid(&mut self, key: &str, limit: &Self::Limit, cost: u64) -> Answer;
    /// Takes `cost` if one unit is free, and keeps the receipt.
    fn take_postpaid_with_receipt(&mut self, key: &str, limit: &Self::Limit, cost: u64) -> Reserved;
    /// Records `cost`, whatever is left.
    fn debit(&mut self, key: &str, limit: &Self::Limit, cost: u64) -> Answer;
    /// Refunds a receipt. Returns the number of refunded units.
    fn refund(&mut self, key: &str, limit: &Self::Limit, receipt: usize) -> u64;
    /// Refunds the oldest units. Returns the number of refunded units.
    fn refund_units(&mut self, key: &str, limit: &Self::Limit, units: u64) -> u64;
    /// Forgets the spent units of a key.
    fn reset(&mut self, key: &str);
    /// Removes every state that equals a fresh one.
    fn forget_stale(&mut self);
}

/// A decision with all of its fields, for comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Whether the call is admitted.
    pub is_allowed: bool,
    /// The maximum number of units.
    pub limit: u64,
    /// The number of units that are left.
    pub remaining: u64,
    /// The wait until the same call is admitted; 0 if it was.
    pub wait: Wait,
    /// The time until no spent units count any more, or an aligned window ends.
    pub reset_us: u64,
    /// The fields that only this strategy has.
    pub detail: Detail,
}

/// The wait of a denied call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// This many microseconds.
    Micros(u64),
    /// The call can never be admitted.
    Never,
}

impl Wait {
    /// Returns the wait in microseconds, or `None` if waiting does not help.
    pub fn micros(self) -> Option<u64> {
        match self {
            Self::Micros(wait_us) => Some(wait_us),
            Self::Never => None,
        }
    }
}

/// The fields that only single strategies have.
#[derive(Debug, Clone, PartialEq)]
pub enum Detail {
    /// None.
    Plain,
    /// Suppressed: the share of calls that are denied, if the decision was drawn.
    Suppressed {
        /// A share from 0 to 1.
        factor: Option<f64>,
    },
    /// Token bucket.
    Tokens {
        /// The first limit that lacked the cost.
        failed: Option<usize>,
        /// The tokens that are left in each limit.
        balances: Vec<f64>,
    },
    /// Abuse.
    Abuse {
        /// The window that blocks.
        scope: Option<BlockScope>,
        /// Attempts in the short window.
        short_count: u64,
        /// Attempts in the long window.
        long_count: u64,
        /// The remaining duration of the block.
        block_us: u64,
    },
}

/// The answer to [`Subject::take_up_to`].
#[derive(Debug, Clone, PartialEq)]
pub struct UpTo {
    /// The number of units taken.
    pub units: u64,
    /// The decision for these units, or for a single one if none fit.
    pub answer: Answer,
}

/// The answer to [`Subject::take_with_receipt`].
#[derive(Debug, Clone, PartialEq)]
pub struct Reserved {
    /// The decision.
    pub answer: Answer,
    /// The number of the receipt, for [`Subject::refund`], if units were taken.
    pub receipt: Option<usize>,
}
