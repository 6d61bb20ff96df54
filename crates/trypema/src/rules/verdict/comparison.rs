//! Compares the decisions of candidates with those of their live rules.

use super::{Answer, Verdict};
use crate::rules::definition::Rule;
use crate::rules::set::RuleSet;

/// The decisions of a live rule and of its candidate on one request.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Comparison<'v> {
    /// The live rule.
    pub rule: &'v Rule,
    /// The candidate.
    pub candidate: &'v Rule,
    /// Whether the live rule allows the request. True if it does not apply.
    pub is_live_allowed: bool,
    /// Whether the candidate would allow the request. True if it does not apply.
    pub is_candidate_allowed: bool,
}

impl Verdict {
    /// Compares each candidate with its live rule, if at least one of the two applies to the request.
    ///
    /// Leaves out requests that a list decides or that another rule denies: for those, the outcome is the
    /// same whichever of the two rules is in force. Also leaves out rules whose store failed, and candidates
    /// whose share excludes the key. Costs nothing if there are no candidates.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use trypema::RateLimiter;
    /// use trypema::rules::{Engine, Request, RuleSet};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rules = RuleSet::from_yaml(
    ///     "
    ///     rules:
    ///       - {id: per-user, scope: user, strategy: {fixed_window: {limit: 5, window: 1h}}}
    ///       - {id: stricter, candidate_for: per-user, scope: user, strategy: {fixed_window: {limit: 1, window: 1h}}}
    ///     ",
    ///     "rules.yaml",
    /// )?;
    /// let engine = Engine::local(Arc::new(RateLimiter::builder().build()?), rules);
    /// let ann = [("user", "ann")];
    /// for is_candidate_allowed in [true, false] {
    ///     let verdict = engine.try_check(&Request::new(&ann)).expect("local rules answer at once")?;
    ///     assert!(verdict.is_allowed());
    ///     let compared = verdict.comparisons().next().expect("both apply");
    ///     assert_eq!((compared.rule.id.as_str(), compared.candidate.id.as_str()), ("per-user", "stricter"));
    ///     assert!(compared.is_live_allowed && compared.is_candidate_allowed == is_candidate_allowed);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn comparisons(&self) -> impl Iterator<Item = Comparison<'_>> {
        let is_compared = self.listed.is_none() && !self.set.candidates.is_empty();
        let answers: &[Answer] = if is_compared { &self.answers } else { &[] };
        let denying =
            Denying::of(answers.iter().filter(|answer| self.is_denying(answer)).map(|answer| answer.rule));
        let asked = answers.iter().filter_map(move |answer| self.of_candidate(answer, denying));
        let unasked = answers.iter().flat_map(move |answer| self.of_live(answer, denying));
        asked.chain(unasked)
    }

    /// Compares a candidate that applies with its live rule.
    fn of_candidate(&self, answer: &Answer, denying: Denying) -> Option<Comparison<'_>> {
        let live = self.set.at(answer.rule)?.live?;
        let is_candidate_allowed = own(answer)?;
        let is_live_allowed = match self.answers.iter().find(|answer| answer.rule == live) {
            Some(answer) => own(answer)?,
            None => true,
        };
        let pair = Pair { live, candidate: answer.rule };
        pair.compared(&self.set, denying, [is_live_allowed, is_candidate_allowed])
    }

    /// Compares a live rule that applies with those of its candidates that do not.
    fn of_live(&self, answer: &Answer, denying: Denying) -> impl Iterator<Item = Comparison<'_>> {
        let live = answer.rule;
        let candidates =
            own(answer).and_then(|is_allowed| Some((is_allowed, self.set.candidates.get(&live)?)));
        candidates.into_iter().flat_map(move |(is_live_allowed, candidates)| {
            let unasked = candidates.iter().filter(|number| self.is_passed_by(**number));
            unasked.filter_map(move |candidate| {
                let pair = Pair { live, candidate: *candidate };
                pair.compared(&self.set, denying, [is_live_allowed, true])
            })
        })
    }

    /// Whether a candidate for all keys does not apply to the request.
    fn is_passed_by(&self, candidate: u32) -> bool {
        let rule = self.set.at(candidate).map(|compiled| &compiled.rule);
        let is_for_every_key =
            rule.is_some_and(|rule| rule.enabled && rule.share.is_none_or(|share| share >= 1.0));
        is_for_every_key && !self.answers.iter().any(|answer| answer.rule == candidate)
    }

    fn is_denying(&self, answer: &Answer) -> bool {
        let is_enforced = || self.set.at(answer.rule).is_some_and(|compiled| !compiled.rule.is_shadow());
        answer.decision.is_some_and(|decision| !decision.is_allowed()) && is_enforced()
    }
}

/// Whether a rule allows the request by its own count; `None` if the store failed.
fn own(answer: &Answer) -> Option<bool> {
    answer.decision.filter(|decision| !decision.is_substitute()).map(|decision| decision.is_allowed())
}

/// The numbers of a live rule and its candidate.
struct Pair {
    live: u32,
    candidate: u32,
}

impl Pair {
    fn compared<'v>(
        &self,
        set: &'v RuleSet,
        denying: Denying,
        is_allowed: [bool; 2],
    ) -> Option<Comparison<'v>> {
        let [is_live_allowed, is_candidate_allowed] = is_allowed;
        let (rule, candidate) = (&set.at(self.live)?.rule, &set.at(self.candidate)?.rule);
        let compared = Comparison { rule, candidate, is_live_allowed, is_candidate_allowed };
        (!denying.is_by_other_than(self.live)).then_some(compared)
    }
}

/// The enforced rules that deny a request, in as much detail as candidates need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::rules) enum Denying {
    Nobody,
    Only(u32),
    Several,
}

impl Denying {
    /// Summarizes the numbers of the denying rules. Each number must occur once.
    pub(in crate::rules) fn of(mut rules: impl Iterator<Item = u32>) -> Self {
        match (rules.next(), rules.next()) {
            (None, _) => Self::Nobody,
            (Some(only), None) => Self::Only(only),
            (Some(_), Some(_)) => Self::Several,
        }
    }

    /// Whether the request is denied regardless of this rule.
    pub(in crate::rules) fn is_by_other_than(self, rule: u32) -> bool {
        match self {
            Self::Nobody => false,
            Self::Only(only) => only != rule,
            Self::Several => true,
        }
    }
}
