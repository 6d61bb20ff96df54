//! The plan of one request: the checks that its rules require of the store.

use std::sync::Arc;

use super::definition::{IfMissing, KeyVerdict, OnStoreFailure};
use super::request::Request;
use super::set::{CompiledRule, OverrideAction, RuleSet};
use super::verdict::{RuleOutcome, Verdict};
use crate::check::Check;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::strategy::Limit;

/// The rules that apply to a request, with their counters. The verdict has no decisions yet, except for rules
/// that need no counter.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) verdict: Verdict,
    cost: u64,
    is_blocked: bool,
    /// The number of shadow rules: log-only rules and candidates.
    shadow_count: usize,
}

/// The expected length of a counter name. Reserving this much per name avoids most reallocations.
const EXPECTED_KEY_BYTES: usize = 32;

/// Checks of a plan, and for each one the index of its outcome.
#[derive(Debug, Clone, Default)]
pub(super) struct Checks<'p> {
    pub(super) checks: Vec<Check<'p>>,
    pub(super) outcomes: Vec<usize>,
}

/// The treatment of a request that lacks an attribute of a rule with `if_missing: error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnMissing {
    Fail,
    /// The rule denies the request, so that the explanation can show the reason.
    Deny,
}

impl Plan {
    pub(super) fn new(set: Arc<RuleSet>, request: &Request<'_>) -> Result<Self, TrypemaError> {
        Self::build(set, request, OnMissing::Fail)
    }

    /// The same as [`Plan::new`], for an explanation: a missing attribute is a denial and not an error.
    pub(super) fn for_explanation(set: Arc<RuleSet>, request: &Request<'_>) -> Result<Self, TrypemaError> {
        Self::build(set, request, OnMissing::Deny)
    }

    fn build(set: Arc<RuleSet>, request: &Request<'_>, on_missing: OnMissing) -> Result<Self, TrypemaError> {
        let indexed = set.index_request(request)?;
        let list_match = set.list_match(&indexed);
        let mut verdict = Verdict { set, list_match, outcomes: Vec::new(), keys: String::new() };
        let mut shadow_count = 0;
        if verdict.list_match.is_some() {
            return Ok(Self { verdict, cost: request.cost(), is_blocked: false, shadow_count });
        }
        let set = &verdict.set;
        let found = set.find(&indexed)?;
        verdict.outcomes.reserve_exact(found.as_slice().len());
        verdict.keys.reserve(found.as_slice().len() * EXPECTED_KEY_BYTES);
        for entry in found.as_slice() {
            let Some(rule) = set.at(entry.rule) else { continue };
            let start = verdict.keys.len();
            if let Some(attribute) = rule.missing_attribute(&indexed) {
                if rule.fails_on_missing() && on_missing == OnMissing::Fail {
                    return Err(rule.missing_attribute_error(set.attribute_name(attribute)));
                }
                // Without a key it is unknown whether the candidate's share includes the request.
                if rule.rule.share.is_none() {
                    shadow_count += usize::from(rule.rule.is_shadow());
                    verdict.outcomes.push(RuleOutcome::for_missing(entry.rule, start, attribute));
                }
                continue;
            }
            rule.write_key(&mut verdict.keys, *entry, &indexed);
            let key = &verdict.keys[start..];
            let action = rule.override_of(key);
            if !rule.is_in_share(key) || action == Some(&OverrideAction::Verdict(KeyVerdict::Allow)) {
                verdict.keys.truncate(start);
                continue;
            }
            shadow_count += usize::from(rule.rule.is_shadow());
            let is_blocked = action == Some(&OverrideAction::Verdict(KeyVerdict::Block));
            verdict.outcomes.push(RuleOutcome {
                rule: entry.rule,
                key_end: verdict.keys.len(),
                has_override: action.is_some(),
                is_blocked,
                missing: None,
                decision: is_blocked.then(Decision::refused),
            });
        }
        let is_blocked = verdict.rules().any(|rule| rule.is_denying());
        Ok(Self { verdict, cost: request.cost(), is_blocked, shadow_count })
    }

    /// Returns a plan for the counter of this name; `None` if the name belongs to no rule.
    pub(super) fn of_key(set: Arc<RuleSet>, key: &str, cost: u64) -> Option<Self> {
        let rule = *set.ids.get(key.split('|').next()?)?;
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
            decision: is_blocked.then(Decision::refused),
        };
        let verdict = Verdict { set, list_match: None, outcomes: vec![outcome], keys: key.to_owned() };
        Some(Self { verdict, cost, is_blocked, shadow_count: 0 })
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

    /// Replaces the limits of `checks` with those that `set` has for the same counters now.
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

    /// Returns the checks of candidates for rules that may deny a request.
    pub(super) fn candidate_checks(&self) -> Checks<'_> {
        self.checks(self.shadow_count, |rule| self.verdict.set.live_rule_in_force(rule).is_some())
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

    /// Returns the id of the rule of an outcome.
    pub(super) fn rule_of(&self, outcome: usize) -> Option<&str> {
        let rule = self.verdict.outcomes.get(outcome)?.rule;
        self.verdict.set.at(rule).map(|compiled| compiled.rule.id.as_str())
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
            found.checks.push(Check::new(key, limit, self.cost));
            found.outcomes.push(index);
        }
        found
    }
}

impl RuleOutcome {
    /// Returns the outcome of a rule to a request that lacks an attribute of its key. There is no counter, so
    /// its key is empty.
    fn for_missing(rule: u32, key_end: usize, attribute: u16) -> Self {
        Self {
            rule,
            key_end,
            has_override: false,
            is_blocked: true,
            missing: Some(attribute),
            decision: Some(Decision::refused()),
        }
    }
}

impl CompiledRule {
    /// Whether a missing attribute is an error. Never for shadow rules.
    fn fails_on_missing(&self) -> bool {
        self.rule.if_missing == IfMissing::Error && !self.rule.is_shadow()
    }

    fn missing_attribute_error(&self, attribute: &str) -> TrypemaError {
        TrypemaError::MissingAttribute { rule: self.rule.id.clone(), attribute: attribute.to_owned() }
    }
}

impl Checks<'_> {
    /// Returns the same checks at another cost.
    pub(super) fn costing(mut self, cost: u64) -> Self {
        self.checks.iter_mut().for_each(|check| check.cost = cost);
        self
    }

    /// Returns the same checks, with a cost of 0 for abuse rules: they are only checked for a block, because
    /// an attempt counts only once it has failed.
    pub(super) fn for_peek(mut self) -> Self {
        for check in self.checks.iter_mut().filter(|check| matches!(check.limit, Limit::Abuse(_))) {
            check.cost = 0;
        }
        self
    }
}
