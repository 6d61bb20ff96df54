//! The plan of one request: the checks that its rules require of the store.

mod builder;

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::counter;
use super::definition::{KeyVerdict, OnStoreFailure};
use super::request::{IndexedSet, Request};
use super::set::{CompiledRule, OverrideAction, RuleSet};
use super::verdict::{RuleOutcome, Verdict};
use crate::check::Check;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::strategy::ConcurrencyLimit;

/// The rules that apply to a request, with their counters. The verdict has no decisions yet, except for rules
/// that need no counter.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) verdict: Verdict,
    is_blocked: bool,
    /// The number of shadow rules: log-only rules and candidates.
    shadow_count: usize,
}

/// Checks of a plan, and for each one the index of its outcome.
#[derive(Debug, Clone, Default)]
pub(super) struct Checks<'p> {
    pub(super) checks: Vec<Check<'p>>,
    pub(super) outcomes: Vec<usize>,
}

/// The purpose of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A check, which cannot hold anything: concurrency rules are skipped.
    Check,
    /// A reservation.
    Reserve,
    /// The counters at which a request may have reserved: a missing attribute or cost is no error, and lists and
    /// overrides are ignored, because they may have changed since.
    End,
    /// An explanation of all rules. A missing attribute is a denial and not an error, so that the explanation
    /// can show the reason.
    Explain,
}

impl Plan {
    pub(super) fn new(set: Arc<RuleSet>, request: &Request<'_>) -> Result<Self, TrypemaError> {
        Self::build(set, request, Purpose::Check)
    }

    /// The same as [`Plan::new`], for a reservation: concurrency rules apply as well.
    pub(super) fn for_reservation(set: Arc<RuleSet>, request: &Request<'_>) -> Result<Self, TrypemaError> {
        Self::build(set, request, Purpose::Reserve)
    }

    /// Returns a plan whose checks are all counters at which a request may have reserved.
    pub(super) fn for_ending(set: Arc<RuleSet>, request: &Request<'_>) -> Result<Self, TrypemaError> {
        Self::build(set, request, Purpose::End)
    }

    /// The same as [`Plan::new`], for an explanation: a missing attribute is a denial and not an error.
    pub(super) fn for_explanation(set: Arc<RuleSet>, request: &Request<'_>) -> Result<Self, TrypemaError> {
        Self::build(set, request, Purpose::Explain)
    }

    fn build(set: Arc<RuleSet>, request: &Request<'_>, purpose: Purpose) -> Result<Self, TrypemaError> {
        set.validate(request)?;
        match request.sets() {
            [only] => {
                let indexed = set.index_set(*only);
                Self::of_sets(set, slice::from_ref(&indexed), purpose)
            }
            sets => {
                let indexed: Vec<IndexedSet<'_>> = sets.iter().map(|one| set.index_set(*one)).collect();
                Self::of_sets(set, &indexed, purpose)
            }
        }
    }

    /// Returns a plan for the counter of this name; `None` if the name belongs to no rule.
    pub(super) fn of_key(set: Arc<RuleSet>, key: &str, cost: u64) -> Option<Self> {
        let rule = *set.ids.get(counter::rule_of(key))?;
        let compiled = set.at(rule)?;
        let canonical = set.canonical_name(key);
        let key = &*canonical;
        if !compiled.has_counter(key) {
            return None;
        }
        let action = compiled.override_of(key).cloned();
        let is_blocked = action == Some(OverrideAction::Verdict(KeyVerdict::Block));
        let outcome = RuleOutcome {
            rule,
            key_end: key.len(),
            has_override: action.is_some(),
            is_blocked,
            missing: None,
            cost,
            // The caller asks about this cost, not about a request that pays later.
            is_postpaid: false,
            decision: is_blocked.then(Decision::refused),
        };
        let verdict = Verdict {
            set,
            list_match: None,
            outcomes: vec![outcome],
            keys: key.to_owned(),
            unheld: Vec::new(),
        };
        Some(Self { verdict, is_blocked, shadow_count: 0 })
    }

    /// Returns the checks of the enforced rules, which are taken all or nothing. Empty if one of these rules
    /// denies the request regardless of its counter.
    pub(super) fn enforced_checks(&self) -> Checks<'_> {
        if self.is_blocked {
            return Checks::default();
        }
        let count = self.verdict.outcomes.len() - self.shadow_count;
        self.checks(count, |rule| !rule.rule.is_shadow())
    }

    /// Returns the shortest hold of the concurrency rules that may deny the request.
    pub(super) fn shortest_hold(&self) -> Option<Duration> {
        let holds = self.verdict.outcomes.iter().enumerate().filter_map(|(index, outcome)| {
            let rule = self.verdict.set.at(outcome.rule)?;
            let held = rule.limit_of(self.verdict.key(index)).held().filter(|_| !rule.rule.is_shadow());
            held.map(ConcurrencyLimit::hold)
        });
        holds.min()
    }

    /// Returns those of the outcomes that hold slots.
    pub(super) fn slots_of(&self, outcomes: &[usize]) -> Vec<usize> {
        let is_slot = |outcome: &usize| {
            let rule =
                self.verdict.outcomes.get(*outcome).and_then(|outcome| self.verdict.set.at(outcome.rule));
            rule.is_some_and(|rule| rule.limit.is_held())
        };
        outcomes.iter().copied().filter(is_slot).collect()
    }

    /// Replaces the limits of `checks` with those that `set` has for the same counters now.
    #[cfg(feature = "tower")]
    pub(super) fn with_limits_of<'p>(&'p self, set: &'p RuleSet, mut checks: Checks<'p>) -> Checks<'p> {
        for (check, outcome) in checks.checks.iter_mut().zip(&checks.outcomes) {
            let old =
                self.verdict.outcomes.get(*outcome).and_then(|outcome| self.verdict.set.at(outcome.rule));
            let new = old.and_then(|rule| set.compiled(&rule.rule.id)).map(|rule| rule.limit_of(check.key));
            if let Some(limit) = new.filter(|limit| limit.strategy() == check.limit.strategy()) {
                check.limit = limit;
            }
        }
        checks
    }

    /// Returns the checks of log-only rules, and of candidates for log-only rules: each is taken on its own.
    pub(super) fn log_only_checks(&self) -> Checks<'_> {
        self.checks(self.shadow_count, |rule| {
            rule.rule.is_shadow() && self.verdict.set.live_rule_in_force(rule).is_none()
        })
    }

    /// Returns the checks of candidates for rules that may deny a request. Leaves out candidates with several
    /// counters: they would have to be spent all or nothing, and only the enforced rules are.
    pub(super) fn candidate_checks(&self) -> Checks<'_> {
        let outcomes = &self.verdict.outcomes;
        let mut candidates =
            self.checks(self.shadow_count, |rule| self.verdict.set.live_rule_in_force(rule).is_some());
        let is_alone = |index: usize| {
            let rule_of = |index: usize| outcomes.get(index).map(|outcome| outcome.rule);
            let neighbours = [index.checked_sub(1), Some(index + 1)].into_iter().flatten();
            neighbours.map(rule_of).all(|other| other != rule_of(index))
        };
        let kept: Vec<bool> = candidates.outcomes.iter().map(|index| is_alone(*index)).collect();
        let mut is_kept = kept.iter();
        candidates.checks.retain(|_| is_kept.next().is_some_and(|is_kept| *is_kept));
        candidates.outcomes.retain(|index| is_alone(*index));
        candidates
    }

    pub(super) fn has_candidates(&self) -> bool {
        let is_candidate = |rule: &CompiledRule| self.verdict.set.live_rule_in_force(rule).is_some();
        self.shadow_count > 0
            && self
                .verdict
                .outcomes
                .iter()
                .any(|outcome| self.verdict.set.at(outcome.rule).is_some_and(is_candidate))
    }

    /// Whether the rule of an outcome is a shadow rule.
    pub(super) fn is_shadow(&self, outcome: usize) -> bool {
        let rule = self.verdict.outcomes.get(outcome).and_then(|outcome| self.verdict.set.at(outcome.rule));
        rule.is_some_and(|rule| rule.rule.is_shadow())
    }

    /// Returns the checks for a verdict without spending. If an enforced rule denies the request regardless
    /// of its counter, only those of shadow rules.
    pub(super) fn checks_to_peek(&self) -> Checks<'_> {
        if self.is_blocked {
            return self.checks(self.shadow_count, |rule| rule.rule.is_shadow());
        }
        self.all_checks()
    }

    /// Returns a check for every rule that applies.
    pub(super) fn all_checks(&self) -> Checks<'_> {
        self.checks(self.verdict.outcomes.len(), |_| true)
    }

    /// Stores decisions in their outcomes.
    pub(super) fn decide(&mut self, outcomes: &[usize], decisions: &[Option<Decision>]) {
        for (index, decision) in outcomes.iter().zip(decisions) {
            if let (Some(outcome), Some(decision)) = (self.verdict.outcomes.get_mut(*index), decision) {
                outcome.decision = Some(*decision);
            }
        }
    }

    /// Returns the failure policy of the rule of an outcome, if the rule has its own.
    pub(super) fn on_store_failure(&self, outcome: usize) -> Option<OnStoreFailure> {
        let rule = self.verdict.outcomes.get(outcome)?.rule;
        self.verdict.set.at(rule)?.rule.on_store_failure
    }

    fn checks(&self, count: usize, is_wanted: impl Fn(&CompiledRule) -> bool) -> Checks<'_> {
        if count == 0 {
            return Checks::default();
        }
        let mut found = Checks { checks: Vec::with_capacity(count), outcomes: Vec::with_capacity(count) };
        for (index, outcome) in self.verdict.outcomes.iter().enumerate() {
            let rule = self.verdict.set.at(outcome.rule).filter(|rule| is_wanted(rule));
            let Some(rule) = rule.filter(|_| !outcome.is_blocked) else { continue };
            let key = self.verdict.key(index);
            let limit = if outcome.has_override { rule.limit_of(key) } else { &rule.limit };
            let check = Check { is_postpaid: outcome.is_postpaid, ..Check::new(key, limit, outcome.cost) };
            found.checks.push(check);
            found.outcomes.push(index);
        }
        found
    }
}

impl Checks<'_> {
    /// Returns the same checks at another cost.
    pub(super) fn costing(mut self, cost: u64) -> Self {
        self.checks.iter_mut().for_each(|check| check.cost = cost);
        self
    }

    /// Returns those of the checks whose outcomes are among `outcomes`, at no cost, to report what is left.
    pub(super) fn usage_of(mut self, outcomes: &[usize]) -> Self {
        let is_wanted: Vec<bool> = self.outcomes.iter().map(|outcome| outcomes.contains(outcome)).collect();
        let wanted = self.checks.iter().zip(&is_wanted).filter(|(_, is_wanted)| **is_wanted);
        self.checks = wanted.map(|(check, _)| check.usage()).collect();
        self.outcomes.retain(|outcome| outcomes.contains(outcome));
        self
    }

    /// Returns the same checks, with a cost of 0 for abuse rules: they are only checked for a block, because
    /// an attempt counts only once it has failed.
    pub(super) fn for_peek(mut self) -> Self {
        for check in self.checks.iter_mut().filter(|check| check.limit.counts_attempts()) {
            check.cost = 0;
        }
        self
    }
}
