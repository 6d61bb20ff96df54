//! Rules: which limit applies to which requests, and under which key.
//!
//! A [`RuleSet`] is compiled from [`Rules`], which come from YAML or from a database. An [`Engine`] checks
//! requests against a rule set and can replace the set while requests are running.

mod address;
mod changes;
mod compile;
mod condition;
pub(crate) mod counter;
mod definition;
mod document;
mod endpoint;
mod engine;
mod explain;
mod file;
mod hashing;
mod index;
mod key_values;
mod missing;
mod networks;
mod numbers;
mod pattern;
mod period;
mod plan;
mod problem;
mod request;
mod reservation;
mod schema;
mod set;
mod share;
mod starts;
mod unmatched;
mod verdict;
mod watch;
mod yaml;

pub use changes::RuleSetChanges;
pub use condition::Condition;
pub use definition::{Action, IfMissing, KeyVerdict, OnStoreFailure, Override, Rule, Rules, Scope};
pub use document::{Document, Parsed};
#[cfg(feature = "tower")]
pub(crate) use endpoint::canonical as canonical_path;
pub use endpoint::{has_dot_segments, normalize_path};
#[cfg(feature = "tower")]
pub(crate) use engine::SelectProvider;
pub use engine::{BacklogCounts, Engine};
pub use explain::{ApplyingRule, Explanation, NotApplyingReason, NotApplyingRule, PreparedExplanation};
pub use file::RulesFile;
pub use hashing::HashedAttributes;
pub use key_values::KeyValues;
pub use missing::{NeededAttribute, SkippedRule};
pub use numbers::*;
pub use period::{InvalidPeriod, Period};
pub use problem::{FieldPath, InvalidRules, RuleProblem};
#[cfg(feature = "http")]
pub(crate) use request::REQUESTS;
pub use request::{AttributeSet, Request};
#[cfg(feature = "tower")]
pub(crate) use reservation::{FinalCosts, RenewingReservation};
pub use reservation::{
    Holder, OnDrop, Reservation, ReservationRef, ReserveOptions, SettledRule, SettledStatus, Settlement,
};
pub use set::RuleSet;
pub use starts::{InvalidStarts, Starts};
pub use unmatched::UnmatchedOverride;
pub use verdict::{Comparison, Outcome, RuleDecision, Verdict};
pub use watch::FileWatcher;
