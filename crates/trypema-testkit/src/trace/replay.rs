//! Replays a trace, and reports the answers that differ.

use std::fmt;

use super::parse::{Trace, What};
use super::provider::{Provider, TimedCall, Unsupported};

/// An answer that differs from the expected one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The name of the file.
    pub name: String,
    /// The line number, from 1.
    pub number: usize,
    /// The text of the line.
    pub text: String,
    /// The expected answer.
    pub expected: String,
    /// The actual answer, with all of its numbers.
    pub got: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, number, text, expected, got } = self;
        write!(f, "{name}:{number}: {text}\n  expected {expected}\n  got      {got}")
    }
}

/// Makes every call of `trace` and returns the answers that differ, in order. Stops at an unsupported call.
pub fn replay(trace: &Trace, provider: &mut dyn Provider) -> Result<Vec<Mismatch>, Unsupported> {
    let mut mismatches = Vec::new();
    let mut current = None;
    for line in &trace.lines {
        match (&line.what, current) {
            (What::Limit(limit), _) => current = Some(limit),
            (What::Step(_), None) => return Err(Unsupported("a step before the first limit")),
            (What::Step(step), Some(limit)) => {
                let call = TimedCall { now: step.at, limit, key: &step.key, verb: &step.verb };
                let answer = provider.call(call)?;
                if !answer.fulfils(&step.expected) {
                    mismatches.push(Mismatch {
                        name: trace.name.clone(),
                        number: line.number,
                        text: line.text.clone(),
                        expected: step.expected.to_string(),
                        got: answer.to_string(),
                    });
                }
            }
        }
    }
    Ok(mismatches)
}
