//! Explains the verdict on a request.

use std::collections::BTreeMap;
use std::fmt;

use super::definition::Rule;
use super::endpoint::EndpointPattern;
use super::index::MatchedRules;
use super::request::{IndexedSet, Request};
use super::set::{CompiledRule, ListMatch, MatchedPath, RuleSet};
use super::verdict::{RuleDecision, Verdict};
use crate::error::TrypemaError;

/// The outcome of every rule for a request. Created by [`Engine::explain`](super::Engine::explain).
#[derive(Debug, Clone)]
pub struct Explanation {
    /// The verdict that the request would get. Nothing was spent.
    pub verdict: Verdict,
    /// The rules that do not apply, in the order of the rules, each with the reason.
    pub(super) reasons: Vec<(u32, NotApplyingReason)>,
    /// The units left of each rule that applies, by the index of its outcome in the verdict.
    pub(super) left: BTreeMap<usize, u64>,
}

/// An [`Explanation`] without the rules that do not apply. Created by
/// [`Engine::prepare_explanation`](super::Engine::prepare_explanation), which has an example.
#[derive(Debug, Clone)]
pub struct PreparedExplanation {
    pub(super) verdict: Verdict,
    /// As in [`Explanation`].
    pub(super) left: BTreeMap<usize, u64>,
}

/// A rule that applies to a request.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ApplyingRule<'e> {
    /// The decision of the rule.
    pub decision: RuleDecision<'e>,
    /// The units left before the request.
    pub left: u64,
}

/// A rule that does not apply to a request.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct NotApplyingRule<'e> {
    /// The rule.
    pub rule: &'e Rule,
    /// The reason.
    pub reason: &'e NotApplyingReason,
}

/// The reason why a rule does not apply to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotApplyingReason {
    /// The rule is disabled.
    Disabled,
    /// The rule is for other plans.
    OtherPlan,
    /// The rule is for other endpoints.
    OtherEndpoint,
    /// A condition of the rule on this attribute does not hold.
    OtherValue(String),
    /// The request lacks this attribute, which is part of the rule's key.
    MissingAttribute(String),
    /// The request has no cost in this unit, which the rule counts.
    MissingCost(String),
    /// The rule is a candidate, and the key is outside its share.
    OutsideShare,
    /// An override exempts the key.
    AllowedKey,
    /// A list decides the request by this attribute.
    Listed(String),
    /// The request has no attribute sets.
    NoSets,
}

impl NotApplyingReason {
    /// Returns how far the rule was from applying: of two reasons, the higher one is closer.
    fn rank(&self) -> u8 {
        match self {
            Self::NoSets | Self::Disabled => 0,
            Self::OtherEndpoint => 1,
            Self::OtherPlan => 2,
            Self::OtherValue(_) => 3,
            Self::MissingAttribute(_) => 4,
            Self::OutsideShare => 5,
            Self::MissingCost(_) => 6,
            Self::AllowedKey => 7,
            Self::Listed(_) => 8,
        }
    }
}

impl fmt::Display for NotApplyingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("the rule is disabled"),
            Self::OtherPlan => f.write_str("the rule is for other plans"),
            Self::OtherEndpoint => f.write_str("the rule is for other endpoints"),
            Self::OtherValue(name) => write!(f, "the rule is for other values of {name:?}"),
            Self::MissingAttribute(name) => write!(f, "the request has no {name:?}"),
            Self::MissingCost(unit) => write!(f, "the request has no cost in {unit:?}"),
            Self::OutsideShare => f.write_str("the key is outside the candidate's share"),
            Self::AllowedKey => f.write_str("an override exempts the key"),
            Self::Listed(name) => write!(f, "an allow or block list of {name:?} decides"),
            Self::NoSets => f.write_str("the request has no attribute sets"),
        }
    }
}

impl PreparedExplanation {
    /// Finds the reason of every rule that does not apply. `request` is the one for which the explanation was
    /// prepared. The time grows with the number of rules: some milliseconds for ten thousand.
    ///
    /// # Errors
    ///
    /// The request is invalid.
    pub fn finish(self, request: &Request<'_>) -> Result<Explanation, TrypemaError> {
        let Self { verdict, left } = self;
        verdict.set.validate(request)?;
        let sets: Vec<IndexedSet<'_>> =
            request.sets().iter().map(|one| verdict.set.index_set(*one)).collect();
        let is_applied = |number: u32| verdict.outcomes.iter().any(|outcome| outcome.rule == number);
        let reasons = (0..).zip(&verdict.set.rules).filter(|(number, _)| !is_applied(*number));
        let reasons = reasons
            .map(|(number, rule)| (number, verdict.set.not_applying_reason(number, rule, &sets)))
            .collect();
        Ok(Explanation { reasons, left, verdict })
    }
}

impl Explanation {
    /// Returns the rules that apply, by priority.
    pub fn applying(&self) -> impl Iterator<Item = ApplyingRule<'_>> {
        self.verdict.rules_by_index().map(|(index, decision)| ApplyingRule {
            decision,
            left: self.left.get(&index).copied().unwrap_or(0),
        })
    }

    /// Returns the rules that do not apply, each with the reason.
    pub fn not_applying(&self) -> impl Iterator<Item = NotApplyingRule<'_>> {
        let rule_at = |number: u32| self.verdict.set.at(number).map(|compiled| &compiled.rule);
        self.reasons
            .iter()
            .filter_map(move |(number, reason)| Some(NotApplyingRule { rule: rule_at(*number)?, reason }))
    }
}

impl RuleSet {
    /// Returns the reason why a rule does not apply to a request: of its attribute sets, that of the one that
    /// comes closest.
    fn not_applying_reason(
        &self,
        number: u32,
        rule: &CompiledRule,
        sets: &[IndexedSet<'_>],
    ) -> NotApplyingReason {
        let blocking = sets.iter().find_map(|indexed| self.block_match(indexed));
        let is_exempt = || sets.iter().all(|indexed| self.allow_match(indexed).is_some());
        let exempting = || sets.first().filter(|_| is_exempt()).and_then(|first| self.allow_match(first));
        if let (true, Some(ListMatch { attribute, .. })) = (rule.rule.enabled, blocking.or_else(exempting)) {
            return NotApplyingReason::Listed(self.attribute_name(attribute).to_owned());
        }
        let reasons = sets.iter().map(|indexed| self.reason_of_set(number, rule, indexed));
        // `max_by_key` returns the last of equal reasons; the first set is the one to name.
        reasons.rev().max_by_key(NotApplyingReason::rank).unwrap_or(NotApplyingReason::NoSets)
    }

    /// Returns the reason why a rule does not apply to an attribute set.
    fn reason_of_set(&self, number: u32, rule: &CompiledRule, indexed: &IndexedSet<'_>) -> NotApplyingReason {
        let has_plan = |wanted: &String| indexed.plan == Some(wanted);
        let is_endpoint = rule.endpoints.is_empty()
            || rule
                .endpoints
                .iter()
                .any(|endpoint| endpoint.matches(indexed.method.as_deref(), indexed.path.as_ref()));
        if !rule.rule.enabled {
            NotApplyingReason::Disabled
        } else if !is_endpoint {
            missing_of_endpoint(rule, indexed).map_or(NotApplyingReason::OtherEndpoint, |name| {
                NotApplyingReason::MissingAttribute(name.to_owned())
            })
        } else if !rule.rule.plan_tiers.is_empty() && !rule.rule.plan_tiers.iter().any(has_plan) {
            NotApplyingReason::OtherPlan
        } else if let Some(failed) = rule.conditions.iter().find(|condition| !condition.holds(indexed)) {
            NotApplyingReason::OtherValue(self.attribute_name(failed.attribute).to_owned())
        } else if let Some(ListMatch { attribute, .. }) = self.allow_match(indexed) {
            NotApplyingReason::Listed(self.attribute_name(attribute).to_owned())
        } else {
            let missing =
                rule.placeholders.iter().find(|placeholder| indexed.value(placeholder.attribute).is_none());
            match missing {
                Some(placeholder) => NotApplyingReason::MissingAttribute(placeholder.name.to_string()),
                None if self.is_outside_share(number, rule, indexed) => NotApplyingReason::OutsideShare,
                None if indexed.cost(rule.rule.unit.as_deref()).is_none() => {
                    NotApplyingReason::MissingCost(rule.rule.unit_name().to_owned())
                }
                None => NotApplyingReason::AllowedKey,
            }
        }
    }

    /// Whether the rule is a candidate, and a key of the request is outside its share.
    fn is_outside_share(&self, number: u32, rule: &CompiledRule, indexed: &IndexedSet<'_>) -> bool {
        indexed.paths().any(|path| {
            let mut found = MatchedRules::default();
            self.candidate_index.find(indexed, path, &mut found);
            let entry = found.as_slice().iter().find(|entry| entry.rule == number);
            entry.is_some_and(|entry| {
                let mut key = String::new();
                rule.write_key(&mut key, MatchedPath { entry: *entry, path }, indexed);
                !rule.is_in_share(&key)
            })
        })
    }
}

/// Returns the missing attribute, `endpoint` or `method`, that is needed to match the rule's endpoints.
fn missing_of_endpoint(rule: &CompiledRule, indexed: &IndexedSet<'_>) -> Option<&'static str> {
    let Some(path) = &indexed.path else { return Some("endpoint") };
    let would_match = |endpoint: &EndpointPattern| endpoint.matches(endpoint.method.as_deref(), Some(path));
    (indexed.method.is_none() && rule.endpoints.iter().any(would_match)).then_some("method")
}
