//! What a random trace is played on: anything that has the verbs and answers in plain numbers.

#[cfg(feature = "redis")]
mod hybrid;
mod library;
mod local;
mod modelled;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod upgrade;

use trypema::BlockScope;

#[cfg(feature = "redis")]
pub use hybrid::HybridStrategy;
pub use library::{LibrarySubject, Provides};
pub use local::{LocalStrategy, LocalSubject, OnLocal};
pub use modelled::ModelSubject;
#[cfg(feature = "redis")]
pub use redis::{OnRedis, RedisStrategy, RedisSubject};
#[cfg(feature = "redis")]
pub use upgrade::{OnTwoVersions, UpgradeSubject, Versions};

/// A provider, or a model of one, as a trace sees it.
///
/// Time is what [`Subject::set_clock`] last said. Receipts are numbered by the order in which
/// [`Subject::reserve`] gave them, so that two subjects that agree number them alike.
pub trait Subject {
    /// The limit, as plain numbers.
    type Limit;

    /// Moves the clock, forward or back.
    fn set_clock(&mut self, now_us: u64);
    /// Takes `cost` if it fits.
    fn take(&mut self, key: &str, limit: &Self::Limit, cost: u64) -> Answer;
    /// What [`Subject::take`] would answer.
    fn peek(&mut self, key: &str, limit: &Self::Limit, cost: u64) -> Answer;
    /// Takes as much of `cost` as fits.
    fn take_up_to(&mut self, key: &str, limit: &Self::Limit, cost: u64) -> UpTo;
    /// Takes `cost` for units to be spent until `lease_us` from now, and keeps the receipt.
    fn reserve(&mut self, key: &str, limit: &Self::Limit, cost: u64, lease_us: u64) -> Reserved;
    /// Gives back what a receipt names; returns how many units that were.
    fn refund(&mut self, key: &str, limit: &Self::Limit, receipt: usize) -> u64;
    /// Gives back the oldest units; returns how many that were.
    fn refund_units(&mut self, key: &str, limit: &Self::Limit, units: u64) -> u64;
    /// Forgets what a key has spent.
    fn reset(&mut self, key: &str);
    /// Drops every state that is as good as fresh.
    fn forget_stale(&mut self);
}

/// A decision, every field of it, comparable.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Whether the call may go ahead.
    pub is_allowed: bool,
    /// What fits at most.
    pub limit: u64,
    /// What is left.
    pub remaining: u64,
    /// The wait until the same call is admitted: 0 when it was.
    pub wait: Wait,
    /// How long until nothing spent counts any more, or an aligned window ends.
    pub reset_us: u64,
    /// What only this strategy tells.
    pub detail: Detail,
}

/// How long a denied call has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// This many microseconds.
    Micros(u64),
    /// It can never be admitted.
    Never,
}

impl Wait {
    /// The wait in microseconds, if waiting helps.
    pub fn micros(self) -> Option<u64> {
        match self {
            Self::Micros(wait_us) => Some(wait_us),
            Self::Never => None,
        }
    }
}

/// What single strategies tell beside the common fields.
#[derive(Debug, Clone, PartialEq)]
pub enum Detail {
    /// Nothing more.
    Plain,
    /// Suppressed: the share being denied, where the answer was drawn.
    Suppressed {
        /// From 0 to 1.
        factor: Option<f64>,
    },
    /// Token bucket.
    Tokens {
        /// The first limit that lacked the cost.
        failed: Option<usize>,
        /// What is left of each limit.
        balances: Vec<f64>,
    },
    /// Abuse.
    Abuse {
        /// Which window blocked.
        scope: Option<BlockScope>,
        /// Attempts in the short window.
        short_count: u64,
        /// Attempts in the long window.
        long_count: u64,
        /// How long the block lasts.
        block_us: u64,
    },
}

/// The answer to [`Subject::take_up_to`].
#[derive(Debug, Clone, PartialEq)]
pub struct UpTo {
    /// How many units were taken.
    pub units: u64,
    /// The decision for them, or for a single one when none fit.
    pub answer: Answer,
}

/// The answer to [`Subject::reserve`].
#[derive(Debug, Clone, PartialEq)]
pub struct Reserved {
    /// The decision.
    pub answer: Answer,
    /// The number of the receipt, for [`Subject::refund`], if something was taken.
    pub receipt: Option<usize>,
}
