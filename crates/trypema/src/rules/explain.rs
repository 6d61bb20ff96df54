//! Why a request would get what it gets.

use std::collections::BTreeMap;
use std::fmt;

use super::definition::Rule;
use super::request::{Facts, Request};
use super::set::{Compiled, Listed, RuleSet};
use super::verdict::{RuleDecision, Verdict};
use crate::error::TrypemaError;

/// What every rule has to say about a request; made by [`Engine::explain`](super::Engine::explain).
#[derive(Debug, Clone)]
pub struct Explanation {
    /// What the request would get: nothing was spent.
    pub verdict: Verdict,
    /// For every rule that does not apply the reason, in the order of the rules.
    pub(super) reasons: Vec<(u32, Reason)>,
    /// What is left of each rule that applies, by its place among the verdict's answers.
    pub(super) left: BTreeMap<usize, u64>,
}

/// A rule that applies to a request.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Explained<'e> {
    /// What it would decide.
    pub decision: RuleDecision<'e>,
    /// What is left now, before the request.
    pub left: u64,
}

/// A rule that does not apply to a request.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct NotApplying<'e> {
    /// The rule.
    pub rule: &'e Rule,
    /// Why not.
    pub reason: &'e Reason,
}

/// Why a rule does not apply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It is not enabled.
    Disabled,
    /// It is for other plans.
    OtherPlan,
    /// It is for other endpoints.
    OtherEndpoint,
    /// The request lacks an attribute that its key is made of.
    MissingAttribute(String),
    /// It is a candidate for a share of its keys, which this key is not in.
    OutsideShare,
    /// An override lets the key pass.
    AllowedKey,
    /// A list decides about the request by this attribute.
    Listed(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("it is not enabled"),
            Self::OtherPlan => f.write_str("it is for other plans"),
            Self::OtherEndpoint => f.write_str("it is for other endpoints"),
            Self::MissingAttribute(name) => write!(f, "the request has no {name:?}"),
            Self::OutsideShare => f.write_str("this key is outside its share"),
            Self::AllowedKey => f.write_str("an override lets this key pass"),
            Self::Listed(name) => write!(f, "a list decides by {name:?}"),
        }
    }
}

impl Explanation {
    pub(super) fn new(
        verdict: Verdict,
        left: BTreeMap<usize, u64>,
        request: &Request<'_>,
    ) -> Result<Self, TrypemaError> {
        let facts = verdict.set.facts(request)?;
        let is_applied = |number: u32| verdict.answers.iter().any(|answer| answer.rule == number);
        let reasons = (0..).zip(&verdict.set.rules).filter(|(number, _)| !is_applied(*number));
        let reasons =
            reasons.map(|(number, rule)| (number, verdict.set.reason(number, rule, &facts))).collect();
        Ok(Self { reasons, left, verdict })
    }

    /// The rules that apply, by priority.
    pub fn applying(&self) -> impl Iterator<Item = Explained<'_>> {
        self.verdict.rules_by_answer().map(|(index, decision)| Explained {
            decision,
            left: self.left.get(&index).copied().unwrap_or(0),
        })
    }

    /// The rules that do not apply, each with the reason.
    pub fn not_applying(&self) -> impl Iterator<Item = NotApplying<'_>> {
        let rule_at = |number: u32| self.verdict.set.at(number).map(|compiled| &compiled.rule);
        self.reasons
            .iter()
            .filter_map(move |(number, reason)| Some(NotApplying { rule: rule_at(*number)?, reason }))
    }
}

impl RuleSet {
    /// Why a rule does not apply.
    fn reason(&self, number: u32, rule: &Compiled, facts: &Facts<'_>) -> Reason {
        let has_plan = |wanted: &String| facts.plan == Some(wanted);
        let mut endpoints = rule.endpoints.iter();
        if !rule.rule.enabled {
            Reason::Disabled
        } else if let Some(Listed { attribute, .. }) = self.listed(facts) {
            Reason::Listed(self.attribute_name(attribute).to_owned())
        } else if !rule.endpoints.is_empty()
            && !endpoints.any(|endpoint| endpoint.matches(facts.method, facts.path.as_ref()))
        {
            Reason::OtherEndpoint
        } else if !rule.rule.plan_tiers.is_empty() && !rule.rule.plan_tiers.iter().any(has_plan) {
            Reason::OtherPlan
        } else {
            let missing =
                rule.placeholders.iter().find(|placeholder| facts.value(placeholder.attribute).is_none());
            match missing {
                Some(placeholder) => Reason::MissingAttribute(placeholder.name.to_string()),
                None if self.is_outside_share(number, rule, facts) => Reason::OutsideShare,
                None => Reason::AllowedKey,
            }
        }
    }

    /// Whether the key that a request has of a rule is none that the rule is asked for.
    fn is_outside_share(&self, number: u32, rule: &Compiled, facts: &Facts<'_>) -> bool {
        let found = self.candidate_index.find(facts);
        let entry = found.as_slice().iter().find(|entry| entry.rule == number);
        entry.is_some_and(|entry| {
            let mut key = String::new();
            rule.write_key(&mut key, *entry, facts);
            !rule.is_asked_for(&key)
        })
    }
}
