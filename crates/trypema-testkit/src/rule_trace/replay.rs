//! Replays a rule trace, and reports the answers that differ.

use std::fmt;

use trypema::clock::Timestamp;

use super::answer::RuleAnswer;
use super::file::RuleTrace;
use super::request::CheckBody;
use super::step::{StepAnswer, StepRequest};

/// Something that answers requests by rules.
pub trait RuleSubject {
    /// Sends a request at a time, which is not before that of the last request. Returns `None` if the subject
    /// has no way to send it.
    fn ask(&mut self, at: Timestamp, request: &CheckBody) -> Option<RuleAnswer>;

    /// Sends the request of a step. A subject without reservations only answers checks.
    fn answer(&mut self, at: Timestamp, request: &StepRequest) -> Option<StepAnswer> {
        request.as_check().and_then(|request| self.ask(at, request)).map(StepAnswer::Verdict)
    }
}

/// The result of replaying a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The answers that differ, in order.
    pub mismatches: Vec<RuleMismatch>,
    /// The number of steps that the subject answered.
    pub answered: usize,
}

/// An answer that differs from the expected one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleMismatch {
    /// The name of the trace.
    pub name: String,
    /// The number of the step, from 1.
    pub step: usize,
    /// The request, as JSON.
    pub request: String,
    /// The expected answer.
    pub expected: String,
    /// The actual answer.
    pub got: String,
}

impl fmt::Display for RuleMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, step, request, expected, got } = self;
        write!(f, "{name}: step {step}: {request}\n  expected {expected}\n  got      {got}")
    }
}

/// Sends every request of `trace` that `subject` can send, and compares the answers.
pub fn replay(trace: &RuleTrace, subject: &mut dyn RuleSubject) -> Replayed {
    let mut replayed = Replayed::default();
    for (step, number) in trace.steps.iter().zip(1..) {
        let Some(got) = subject.answer(step.at, &step.request) else { continue };
        replayed.answered += 1;
        if !got.fulfils(&step.expected) {
            replayed.mismatches.push(RuleMismatch {
                name: trace.name.clone(),
                step: number,
                // Texts and numbers can always be written.
                request: serde_json::to_string(&step.request).unwrap_or_default(),
                expected: step.expected.to_string(),
                got: got.to_string(),
            });
        }
    }
    replayed
}
