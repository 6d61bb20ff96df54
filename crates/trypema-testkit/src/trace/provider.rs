//! The interface on which a trace is replayed.

use std::fmt;

use trypema::clock::Timestamp;

use super::answer::Answer;
use super::limit::Limit;
use super::step::Verb;

/// One call of a trace.
#[derive(Debug, Clone, Copy)]
pub struct TimedCall<'t> {
    /// The time of the call, which may be before that of the previous call.
    pub now: Timestamp,
    /// The limit.
    pub limit: &'t Limit,
    /// The key.
    pub key: &'t str,
    /// The verb.
    pub verb: &'t Verb,
}

/// A receiver of the calls of a trace, in order, whose keys are empty at the start.
pub trait Provider {
    /// Makes one call.
    fn call(&mut self, call: TimedCall<'_>) -> Result<Answer, Unsupported>;
}

/// The reason why a provider cannot make a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported(pub &'static str);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Unsupported {}
