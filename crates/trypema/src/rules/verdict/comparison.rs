//! Compares the decisions of candidates with those of their live rules.

use super::{RuleOutcome, Verdict};
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
    /// same whichever of the two rules is in force. Also leaves out rules whose store failed, candidates whose
    /// share excludes the key, and candidates of which the request uses several counters. Costs nothing if there
    /// are no candidates.
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
        let is_compared = self.list_match.is_none() && !self.set.candidates.is_empty();
        let outcomes: &[RuleOutcome] = if is_compared { &self.outcomes } else { &[] };
        let denying = DenyingRules::of(
            outcomes.iter().filter(|outcome| self.is_denying(outcome)).map(|outcome| outcome.rule),
        );
        let applying = outcomes.iter().filter_map(move |outcome| self.compare_candidate(outcome, denying));
        let not_applying = outcomes.iter().flat_map(move |outcome| self.compare_live(outcome, denying));
        applying.chain(not_applying)
    }

    /// Compares a candidate that applies with its live rule.
    fn compare_candidate(&self, outcome: &RuleOutcome, denying: DenyingRules) -> Option<Comparison<'_>> {
        let live = self.set.at(outcome.rule)?.live?;
        let is_candidate_allowed = is_allowed_by_count(outcome)?;
        let is_live_allowed = self.is_allowed_by_counts(live)?;
        let pair = CandidatePair { live, candidate: outcome.rule };
        pair.compare(&self.set, denying, [is_live_allowed, is_candidate_allowed])
    }

    /// Compares a live rule that applies with those of its candidates that do not.
    fn compare_live(
        &self,
        outcome: &RuleOutcome,
        denying: DenyingRules,
    ) -> impl Iterator<Item = Comparison<'_>> {
        let live = outcome.rule;
        let first = self.outcomes.iter().find(|first| first.rule == live);
        let is_first = first.is_some_and(|first| std::ptr::eq(first, outcome));
        let candidates = (is_first.then(|| self.is_allowed_by_counts(live)).flatten())
            .and_then(|is_allowed| Some((is_allowed, self.set.candidates.get(&live)?)));
        candidates.into_iter().flat_map(move |(is_live_allowed, candidates)| {
            let not_applying = candidates.iter().filter(|number| self.is_inapplicable(**number));
            not_applying.filter_map(move |candidate| {
                let pair = CandidatePair { live, candidate: *candidate };
                pair.compare(&self.set, denying, [is_live_allowed, true])
            })
        })
    }

    /// Whether a rule allows the request by all of its counters, or does not apply; `None` if the store failed.
    fn is_allowed_by_counts(&self, rule: u32) -> Option<bool> {
        let mut of_rule = self.outcomes.iter().filter(|outcome| outcome.rule == rule);
        of_rule.try_fold(true, |is_allowed, outcome| Some(is_allowed && is_allowed_by_count(outcome)?))
    }

    /// Whether the candidate is evaluated for all keys and does not apply to the request.
    fn is_inapplicable(&self, candidate: u32) -> bool {
        let rule = self.set.at(candidate).map(|compiled| &compiled.rule);
        let is_for_every_key =
            rule.is_some_and(|rule| rule.enabled && rule.share.is_none_or(|share| share >= 1.0));
        is_for_every_key && !self.outcomes.iter().any(|outcome| outcome.rule == candidate)
    }

    fn is_denying(&self, outcome: &RuleOutcome) -> bool {
        let is_enforced = || self.set.at(outcome.rule).is_some_and(|compiled| !compiled.rule.is_shadow());
        outcome.decision.is_some_and(|decision| !decision.is_allowed()) && is_enforced()
    }
}

/// Whether a rule allows the request by its own count; `None` if the store failed.
fn is_allowed_by_count(outcome: &RuleOutcome) -> Option<bool> {
    outcome.decision.filter(|decision| !decision.is_substitute()).map(|decision| decision.is_allowed())
}

/// The numbers of a live rule and its candidate.
struct CandidatePair {
    live: u32,
    candidate: u32,
}

impl CandidatePair {
    fn compare<'v>(
        &self,
        set: &'v RuleSet,
        denying: DenyingRules,
        is_allowed: [bool; 2],
    ) -> Option<Comparison<'v>> {
        let [is_live_allowed, is_candidate_allowed] = is_allowed;
        let (rule, candidate) = (&set.at(self.live)?.rule, &set.at(self.candidate)?.rule);
        let compared = Comparison { rule, candidate, is_live_allowed, is_candidate_allowed };
        (!denying.is_denied_without(self.live)).then_some(compared)
    }
}

/// The enforced rules that deny a request, in as much detail as candidates need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::rules) enum DenyingRules {
    None,
    Only(u32),
    Several,
}

impl DenyingRules {
    /// Summarizes the numbers of the denying rules, in which a rule with several counters occurs several times.
    pub(in crate::rules) fn of(mut rules: impl Iterator<Item = u32>) -> Self {
        match rules.next() {
            None => Self::None,
            Some(first) if rules.all(|rule| rule == first) => Self::Only(first),
            Some(_) => Self::Several,
        }
    }

    /// Whether the request is denied regardless of this rule.
    pub(in crate::rules) fn is_denied_without(self, rule: u32) -> bool {
        match self {
            Self::None => false,
            Self::Only(only) => only != rule,
            Self::Several => true,
        }
    }
}
