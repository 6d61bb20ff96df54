//! What a trace is replayed on.

use std::fmt;

use trypema::clock::Timestamp;

use super::answer::Answer;
use super::limit::Limit;
use super::step::Verb;

/// One call of a trace.
#[derive(Debug, Clone, Copy)]
pub struct TimedCall<'t> {
    /// When it is made; this may lie before the call made last.
    pub now: Timestamp,
    /// The limit that holds.
    pub limit: &'t Limit,
    /// The key.
    pub key: &'t str,
    /// What is called.
    pub verb: &'t Verb,
}

/// Something that answers the calls of a trace, in order, with states that start empty.
pub trait Provider {
    /// Makes one call.
    fn call(&mut self, call: TimedCall<'_>) -> Result<Answer, Unsupported>;
}

/// A call that a provider has no way to make, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported(pub &'static str);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Unsupported {}
