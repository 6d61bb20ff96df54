//! Random requests to random rules, on the model and on another subject.

use std::time::Duration;

use trypema::clock::Timestamp;
use trypema::rules::Rules;

use super::{RuleModel, draw_rules, draw_step};
use crate::random::Random;
use crate::rule_trace::{
    ReserveBody, RuleOutcome, RuleStep, RuleSubject, RuleTrace, SettledAnswer, StepAnswer, StepRequest,
};

/// The number of requests to each set of rules.
const STEPS: u64 = 40;

/// The longest time between two requests: three days.
const LONGEST_PAUSE_MS: u64 = 259_200_000;

/// The time before the first request: the start of a window of every length.
const START: Timestamp = Timestamp::from_micros(1_600_002_000_000_000);

/// The outcomes of a walk without a difference, for tests that the walks are worth their time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Walked {
    /// The number of requests that were allowed.
    pub allowed: usize,
    /// The number of requests that were denied, throttled or blocked.
    pub denied: usize,
    /// The number of requests that failed.
    pub failed: usize,
    /// The number of reservations that were made or repeated.
    pub reserved: usize,
    /// The number of reservations that a repeated request has found.
    pub repeated: usize,
    /// The number of counters that were settled.
    pub settled: usize,
    /// The number of renewals of a reservation that was outstanding.
    pub renewed: usize,
}

/// Sends the random requests of a seed to the model and to the subject that `subject_of` makes of the rules.
/// The error is a rule trace with the model's answers, and the answer that differs.
pub fn walk<S: RuleSubject>(seed: u64, subject_of: impl FnOnce(&Rules) -> S) -> Result<Walked, String> {
    let mut random = Random::seeded(seed);
    let rules = draw_rules(&mut random);
    let Some(mut model) = RuleModel::new(&rules) else {
        return Err("the model knows other rules".to_owned());
    };
    let mut subject = subject_of(&rules);
    let mut trace = RuleTrace { name: format!("seed {seed}"), rules, steps: Vec::new() };
    let (mut now, mut walked, mut reservations, mut last_with_id) = (START, Walked::default(), 0, None);
    for _ in 0..STEPS {
        now = now + pause(&mut random);
        let request = match &last_with_id {
            Some(request) if random.once_in(10) => {
                StepRequest::Reserve(ReserveBody::clone(request), Some(format!("n{reservations}")))
            }
            _ => draw_step(&mut random, reservations),
        };
        if let StepRequest::Reserve(request, _) = &request
            && request.id.is_some()
        {
            last_with_id = Some(request.clone());
        }
        let (Some(expected), Some(got)) = (model.answer(now, &request), subject.answer(now, &request)) else {
            continue;
        };
        let is_reserved = matches!(&expected, StepAnswer::Reserved(answer) if answer.reserved.is_some());
        reservations += u64::from(is_reserved);
        walked.add(&expected);
        trace.steps.push(RuleStep { at: now, request, expected: expected.clone() });
        if !got.fulfils(&expected) {
            return Err(format!("{}\nat the last step: expected {expected}\n  got {got}", trace.to_text()));
        }
    }
    Ok(walked)
}

impl Walked {
    fn add(&mut self, answer: &StepAnswer) {
        if let Some(verdict) = answer.verdict() {
            match &verdict.outcome {
                outcome if outcome.is_allowed() => self.allowed += 1,
                RuleOutcome::Error(_) => self.failed += 1,
                _ => self.denied += 1,
            }
        }
        match answer {
            StepAnswer::Reserved(answer) => {
                self.reserved += usize::from(answer.reserved.is_some());
                self.repeated += usize::from(answer.reserved.is_some_and(|reserved| reserved.is_repeated));
            }
            StepAnswer::Settled(Ok(settled)) => {
                let is_settled = |answer: &&SettledAnswer| matches!(answer, SettledAnswer::Settled { .. });
                self.settled += settled.values().filter(is_settled).count();
            }
            StepAnswer::Renewed(Ok(renewed)) => self.renewed += usize::from(renewed.0.is_some()),
            _ => {}
        }
    }

    /// Adds the outcomes of another walk.
    pub fn join(&mut self, other: &Self) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.failed += other.failed;
        self.reserved += other.reserved;
        self.repeated += other.repeated;
        self.settled += other.settled;
        self.renewed += other.renewed;
    }
}

/// Returns the time between two requests. It is longer than an interval of the hybrid provider, which
/// therefore leases nothing and remembers no denial.
fn pause(random: &mut Random) -> Duration {
    let longest_ms =
        if random.once_in(20) { LONGEST_PAUSE_MS } else { random.pick(&[500, 500, 3_000, 20_000]) };
    Duration::from_millis(random.between(101, longest_ms))
}
