//! Requests that lack an attribute of a rule's key.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use super::condition::Condition;
use super::definition::{IfMissing, Rule};
use super::request::{IndexedSet, Request};
use super::set::{CompiledRule, RuleSet};
use super::verdict::MissingInput;
use crate::check::MAX_CHECKS;
use crate::error::TrypemaError;

/// A rule that does not apply to a request only because the request lacks an attribute or a cost.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SkippedRule<'s> {
    /// The rule.
    pub rule: &'s Rule,
    /// The first attribute of the rule's key that the request lacks.
    pub attribute: Option<&'s str>,
    /// The rule's unit, if the request has every attribute but no cost in this unit.
    pub unit: Option<&'s str>,
}

/// An attribute, and the rules that need it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NeededAttribute<'s> {
    /// The name of the attribute.
    pub name: &'s str,
    /// The enabled rules with this attribute in their key, or with a condition that needs a value of it, by
    /// priority.
    pub rules: Vec<&'s Rule>,
}

impl RuleSet {
    /// Returns the rules that match a request by endpoint, method, plan and conditions but
    /// [skip](IfMissing::Skip) it because it lacks an attribute or a cost, by priority. An attribute or a cost is
    /// missing if no set of the request has it. Ignores candidates and lists. Allocates, and the time grows with
    /// the number of matching rules.
    ///
    /// ```
    /// use trypema::rules::{Request, RuleSet};
    ///
    /// let rules = RuleSet::from_yaml(
    ///     "rules: [{id: per-user, scope: user, strategy: {fixed_window: {limit: 5, window: 1h}}}]",
    ///     "rules.yaml",
    /// )?;
    /// let skipped: Vec<_> = rules.skipped_rules(&Request::new(&[("ip", "203.0.113.9")]))?.collect();
    /// assert_eq!((skipped[0].rule.id.as_str(), skipped[0].attribute), ("per-user", Some("user")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The request has too many attributes or sets, its path has too many readings, or it names a unit that is not
    /// declared.
    pub fn skipped_rules(
        &self,
        request: &Request<'_>,
    ) -> Result<impl Iterator<Item = SkippedRule<'_>>, TrypemaError> {
        self.validate(request)?;
        let sets: Vec<IndexedSet<'_>> = request.sets().iter().map(|set| self.index_set(*set)).collect();
        sets.iter().try_for_each(IndexedSet::refuse_ambiguous_path)?;
        let is_missing = |attribute: u16| sets.iter().all(|indexed| indexed.value(attribute).is_none());
        // A set may lack several attributes of a rule, of which other sets have some.
        let missing_of_all = |rule: u32, missing: u16| match is_missing(missing) {
            true => Some(missing),
            false => self.at(rule)?.missing_attribute_of_all(&sets),
        };
        let has_no_cost = |rule: &Rule| {
            let is_missing = |unit: &str| sets.iter().all(|indexed| indexed.cost(Some(unit)).is_none());
            rule.if_missing == IfMissing::Skip && rule.unit.as_deref().is_some_and(is_missing)
        };
        let mut found: Vec<(u32, MissingInput)> = Vec::new();
        for indexed in &sets {
            self.index.visit_targeted(indexed, |rule, missing| {
                let attribute = missing.and_then(|missing| missing_of_all(rule, missing));
                let cost = missing.is_none() && self.at(rule).is_some_and(|rule| has_no_cost(&rule.rule));
                found.extend(attribute.map(|attribute| (rule, MissingInput::Attribute(attribute))));
                found.extend(cost.then_some((rule, MissingInput::Cost)));
            });
        }
        found.sort_unstable();
        found.dedup_by_key(|(rule, _)| *rule);
        Ok(found.into_iter().filter_map(|(rule, missing)| {
            let rule = &self.at(rule)?.rule;
            Some(match missing {
                MissingInput::Attribute(attribute) => {
                    SkippedRule { rule, attribute: Some(self.attribute_name(attribute)), unit: None }
                }
                MissingInput::Cost => SkippedRule { rule, attribute: None, unit: Some(rule.unit_name()) },
            })
        }))
    }

    /// Whether a list, or an enforced rule that matches the request, needs an attribute.
    #[cfg(feature = "tower")]
    pub(crate) fn needs(&self, attribute: &str, request: &Request<'_>) -> bool {
        let Some(attribute) = self.attributes.get(attribute).copied() else { return false };
        if self.lists.allow.iter().chain(&self.lists.block).any(|list| list.attribute == attribute) {
            return true;
        }
        if self.validate(request).is_err() {
            return false;
        }
        let mut is_needed = false;
        for set in request.sets() {
            self.index.visit_targeted(&self.index_set(*set), |rule, _| {
                let rule = self.at(rule).filter(|rule| !rule.rule.is_shadow());
                is_needed |= rule.is_some_and(|rule| rule.has_placeholder(attribute));
            });
        }
        is_needed
    }

    /// Returns the attributes that enabled rules need, in their keys or for their conditions, by name.
    pub fn needed_attributes(&self) -> impl Iterator<Item = NeededAttribute<'_>> {
        let mut needed: BTreeMap<&str, Vec<&Rule>> = BTreeMap::new();
        for compiled in self.rules.iter().filter(|compiled| compiled.rule.enabled) {
            let keys = compiled.placeholders.iter().map(|placeholder| &*placeholder.name);
            let needs_value =
                |(_, condition): &(&String, &Condition)| matches!(condition, Condition::OneOf(_));
            let conditions = compiled.rule.when.iter().filter(needs_value).map(|(name, _)| name.as_str());
            for name in keys.chain(conditions).collect::<BTreeSet<_>>() {
                needed.entry(name).or_default().push(&compiled.rule);
            }
        }
        needed.into_iter().map(|(name, rules)| NeededAttribute { name, rules })
    }

    /// The most rules that may apply to one request, not counting candidates. If more apply, the request
    /// fails with an error. A rule that counts by endpoint counts for each path that servers may read.
    pub const MAX_APPLYING: usize = MAX_CHECKS;

    /// Returns an upper bound on the number of rules that apply to one attribute set, not counting candidates. It
    /// may be too high, but is never too low: it assumes that a request has every attribute and a path with six
    /// readings, counts a rule once for each of its endpoints that they can match, and takes the plan with the
    /// most rules at each endpoint. Compare it with [`MAX_APPLYING`](Self::MAX_APPLYING).
    pub fn applying_upper_bound(&self) -> usize {
        self.applying_upper_bound
    }
}

impl CompiledRule {
    /// Returns the first attribute of the rule's key that a request lacks. Always `None` for rules that skip
    /// such requests: the index finds those only if the request has all attributes.
    pub(super) fn missing_attribute(&self, indexed: &IndexedSet<'_>) -> Option<u16> {
        if self.rule.if_missing == IfMissing::Skip {
            return None;
        }
        self.missing_attribute_of_all(slice::from_ref(indexed))
    }

    /// Returns the first attribute of the rule's key that none of these sets has.
    pub(super) fn missing_attribute_of_all(&self, sets: &[IndexedSet<'_>]) -> Option<u16> {
        let mut attributes = self.placeholders.iter().map(|placeholder| placeholder.attribute);
        attributes.find(|attribute| sets.iter().all(|indexed| indexed.value(*attribute).is_none()))
    }

    #[cfg(feature = "tower")]
    fn has_placeholder(&self, attribute: u16) -> bool {
        self.placeholders.iter().any(|placeholder| placeholder.attribute == attribute)
    }
}
