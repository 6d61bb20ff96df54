//! Requests without an attribute that a rule's key needs.

use std::collections::BTreeMap;

use super::definition::{IfMissing, Rule};
use super::request::{Facts, Request};
use super::set::{Compiled, RuleSet};
use crate::check::MAX_CHECKS;
use crate::error::TrypemaError;

/// A rule that does not apply to a request only because the request lacks an attribute.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Skipped<'s> {
    /// The rule.
    pub rule: &'s Rule,
    /// The first attribute of the rule's key that the request lacks.
    pub attribute: &'s str,
}

/// An attribute that rules are made of, and the rules that need it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NeededAttribute<'s> {
    /// The attribute's name.
    pub name: &'s str,
    /// The rules that are in force and have it in their keys, by priority.
    pub rules: Vec<&'s Rule>,
}

impl RuleSet {
    /// The rules that are targeted at a request (by endpoint, method and plan) and that
    /// [skip](IfMissing::Skip) it because it lacks an attribute, by priority. Candidates and lists are not considered.
    /// Takes time for every rule that is targeted at the request, and allocates.
    ///
    /// ```
    /// use trypema::rules::{Request, RuleSet};
    ///
    /// let rules = RuleSet::from_yaml(
    ///     "rules: [{id: per-user, scope: user, strategy: {fixed_window: {limit: 5, window: 1h}}}]",
    ///     "rules.yaml",
    /// )?;
    /// let skipped: Vec<_> = rules.skipped(&Request::new(&[("ip", "203.0.113.9")]))?.collect();
    /// assert_eq!((skipped[0].rule.id.as_str(), skipped[0].attribute), ("per-user", "user"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The request has too many attributes.
    pub fn skipped(&self, request: &Request<'_>) -> Result<impl Iterator<Item = Skipped<'_>>, TrypemaError> {
        let facts = self.facts(request)?;
        let mut found: Vec<(u32, u16)> = Vec::new();
        self.index
            .visit_targeted(&facts, |rule, missing| found.extend(missing.map(|missing| (rule, missing))));
        found.sort_unstable();
        found.dedup_by_key(|(rule, _)| *rule);
        Ok(found.into_iter().filter_map(|(rule, attribute)| {
            Some(Skipped { rule: &self.at(rule)?.rule, attribute: self.attribute_name(attribute) })
        }))
    }

    /// Whether a list, or a rule that can keep this request out, needs an attribute.
    #[cfg(feature = "tower")]
    pub(crate) fn needs(&self, attribute: &str, request: &Request<'_>) -> bool {
        let Some(attribute) = self.attributes.get(attribute).copied() else { return false };
        if self.lists.allow.iter().chain(&self.lists.block).any(|list| list.attribute == attribute) {
            return true;
        }
        let Ok(facts) = self.facts(request) else { return false };
        let mut is_needed = false;
        self.index.visit_targeted(&facts, |rule, _| {
            let rule = self.at(rule).filter(|rule| !rule.rule.is_shadow());
            is_needed |= rule.is_some_and(|rule| rule.has(attribute));
        });
        is_needed
    }

    /// The attributes that the keys of enabled rules are made of, by name.
    pub fn needed_attributes(&self) -> impl Iterator<Item = NeededAttribute<'_>> {
        let mut needed: BTreeMap<&str, Vec<&Rule>> = BTreeMap::new();
        for compiled in self.rules.iter().filter(|compiled| compiled.rule.enabled) {
            for placeholder in &compiled.placeholders {
                needed.entry(&placeholder.name).or_default().push(&compiled.rule);
            }
        }
        needed.into_iter().map(|(name, rules)| NeededAttribute { name, rules })
    }

    /// The most rules that may apply to one request, candidates aside: a request that more apply to ends with an error.
    pub const MAX_APPLYING: usize = MAX_CHECKS;

    /// The most rules that can apply to one request, candidates aside: an upper bound that may be too high and is never
    /// too low. It assumes that a request has every attribute, counts a rule once for each of its endpoints that one
    /// path can match, and takes the plan with the most rules at each endpoint. See
    /// [`MAX_APPLYING`](Self::MAX_APPLYING).
    pub fn most_applying(&self) -> usize {
        self.most_applying
    }
}

impl Compiled {
    /// The first attribute of the rule's key that a request lacks, for a rule that does not skip such requests. The
    /// index finds the other rules only for requests with all of their attributes.
    pub(super) fn missing(&self, facts: &Facts<'_>) -> Option<u16> {
        if self.rule.if_missing == IfMissing::Skip {
            return None;
        }
        let mut attributes = self.placeholders.iter().map(|placeholder| placeholder.attribute);
        attributes.find(|attribute| facts.value(*attribute).is_none())
    }

    #[cfg(feature = "tower")]
    fn has(&self, attribute: u16) -> bool {
        self.placeholders.iter().any(|placeholder| placeholder.attribute == attribute)
    }
}
