//! Rule traces: rules, and timed requests with the answers that the rules must give.
//!
//! `testdata/rule-traces/README.md` describes the format. [`RuleTrace::parse`] reads a trace, [`replay`] runs
//! it on a [`RuleSubject`]: with the feature `redis`, `EngineSubject` (the library's engine on a manual clock)
//! on any provider, and [`RuleModel`](crate::rule_model::RuleModel), a second implementation.
//!
//! ```
//! use trypema_testkit::rule_model::RuleModel;
//! use trypema_testkit::rule_trace::{RuleTrace, replay};
//!
//! let text = "
//! ## Two a minute.
//! rules:
//!   - {id: two, scope: user, strategy: {fixed_window: {limit: 2, window: 1m}}}
//! steps:
//!   - request: {attributes: {user: ann}, cost: 2}
//!     answer: allowed
//!     counters: {two|user=ann: allowed 0}
//!   - request: {attributes: {user: ann}}
//!     answer: denied by two 59s
//!     counters: {two|user=ann: denied 0}
//! ";
//! let trace = RuleTrace::parse("two.yaml", text.trim_start())?;
//! let mut model = RuleModel::new(&trace.rules).expect("only fixed windows");
//! assert!(replay(&trace, &mut model).mismatches.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
#[cfg(feature = "redis")]
mod engine;
mod file;
mod parse;
mod replay;
mod request;
mod reservation;
mod step;
mod written;

pub use answer::{CounterAnswer, Counters, RuleAnswer, RuleOutcome};
#[cfg(feature = "redis")]
pub use engine::EngineSubject;
pub use file::{InvalidRuleTrace, RuleTrace};
pub use replay::{Replayed, RuleMismatch, RuleSubject, replay};
pub use request::{CheckBody, Mode, SetBody};
pub use reservation::{
    ReleaseBody, RenewBody, RenewedAnswer, ReserveAnswer, ReserveBody, ReservedAnswer, SettleBody, Settled,
    SettledAnswer,
};
pub use step::{RuleStep, StepAnswer, StepRequest};

#[cfg(test)]
mod tests;
