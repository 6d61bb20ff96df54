//! Replaying a trace and saying where the answers differ.

use std::fmt;

use super::parse::{Trace, What};
use super::provider::{Provider, TimedCall, Unsupported};

/// An answer that is not the expected one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The file.
    pub name: String,
    /// The line, counted from 1.
    pub number: usize,
    /// The line as it was written.
    pub text: String,
    /// What it expects.
    pub expected: String,
    /// What was answered, with every number that came with it.
    pub got: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, number, text, expected, got } = self;
        write!(f, "{name}:{number}: {text}\n  expected {expected}\n  got      {got}")
    }
}

/// Makes every call of `trace` and gathers the answers that differ, in order. An unsupported call ends it.
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
