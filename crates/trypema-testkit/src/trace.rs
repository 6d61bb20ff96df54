//! Traces: timed calls with their expected answers, written as text and replayed on any provider.
//!
//! `testdata/traces/README.md` describes the format. [`Trace::parse`] reads a trace, [`replay`] runs it on
//! a [`Provider`]: [`Local`] and, with the feature `redis`, `OnRedis` (the library's providers on a manual
//! clock), and [`Pure`] (the strategies alone, one state per key).
//!
//! ```
//! use trypema_testkit::trace::{Local, Trace, replay};
//!
//! let text = "# two a second\nfixed_window 2/1s\n+0 ann 2 -> allowed left=0\n+0 ann -> denied 1s\n";
//! let trace = Trace::parse("two.trace", text)?;
//! let mismatches = replay(&trace, &mut Local::for_trace(&trace)?)?;
//! assert!(mismatches.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod core;
mod expected;
mod limit;
mod local;
mod parse;
mod provider;
mod pure;
#[cfg(feature = "redis")]
mod redis;
mod replay;
mod step;
mod time;
mod view;

pub use answer::{Answer, Head, Value, Wait};
pub use limit::{CompatArgs, Limit, NoLimit};
pub(crate) use limit::{duration, hard_limit_factor, quota, rate, single, unknown_option, whole};
pub use local::Local;
pub use parse::{Line, ParseError, Trace, What};
pub use provider::{Provider, TimedCall, Unsupported};
pub use pure::Pure;
#[cfg(feature = "redis")]
pub use redis::OnRedis;
pub use replay::{Mismatch, replay};
pub use step::{Step, Verb};
pub(crate) use time::count;
pub(crate) use view::{core_answer, drawn};

#[cfg(test)]
mod tests;
