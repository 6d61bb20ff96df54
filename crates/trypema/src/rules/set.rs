//! Rules that were checked and can be asked: immutable, and quick to search.

use super::counter::{self, Value};
use super::definition::{KeyVerdict, Rule, Rules};
use super::endpoint::EndpointPattern;
use super::index::{Entry, Found, Index, Map};
use super::problem::InvalidRules;
use super::request::{Facts, Request};
use super::{compile, index};
use crate::error::TrypemaError;
use crate::strategy::Limit;

/// Rules that were found valid, indexed so that those that cannot apply to a request cost it nothing.
///
/// ```
/// use trypema::rules::RuleSet;
///
/// let rules = RuleSet::from_yaml(
///     "
///     rules:
///       - id: search-per-user
///         scope: user
///         endpoints: [/api/search]
///         strategy: {fixed_window: {limit: 10, window: 60s}}
///     ",
///     "rules.yaml",
/// )?;
/// assert_eq!(rules.len(), 1);
/// # Ok::<(), trypema::rules::InvalidRules>(())
/// ```
#[derive(Debug, Default)]
pub struct RuleSet {
    /// In the order of their priorities.
    pub(super) rules: Vec<Compiled>,
    pub(super) index: Index,
    /// The numbers of the attributes that matter.
    pub(super) attributes: Map<Box<str>, u16>,
    pub(super) lists: Lists,
}

/// A rule that was checked.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) rule: Rule,
    pub(super) limit: Limit,
    pub(super) endpoints: Vec<EndpointPattern>,
    /// In the order of their names.
    pub(super) placeholders: Vec<Placeholder>,
    /// What single keys get, by the names of their counters.
    pub(super) specials: Map<Box<str>, Special>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placeholder {
    pub(super) name: Box<str>,
    pub(super) attribute: u16,
}

/// What a single key gets in place of the rule's limit.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Special {
    Limit(Limit),
    Verdict(KeyVerdict),
}

/// Values that decide a request by themselves, by the numbers of their attributes.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) allow: Map<u16, Map<Box<str>, ()>>,
    pub(super) block: Map<u16, Map<Box<str>, ()>>,
}

impl RuleSet {
    /// Checks and indexes rules; everything that is wrong with them otherwise.
    pub fn compile(rules: &Rules) -> Result<Self, InvalidRules> {
        compile::compile(rules)
    }

    /// The rules in the order of their priorities, those that are not enabled included.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(|compiled| &compiled.rule)
    }

    /// The rule with this id.
    pub fn rule(&self, id: &str) -> Option<&Rule> {
        self.rules().find(|rule| rule.id == id)
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules that apply to a request, by priority, wherever its counters are: lists and overrides are not looked at.
    /// Takes time for the rules that apply and not for the others, and allocates nothing for paths without
    /// percent-encoding.
    pub fn matching(&self, request: &Request<'_>) -> Result<impl Iterator<Item = &Rule>, TrypemaError> {
        let found = self.find(&self.facts(request)?)?;
        Ok(found.into_iter().filter_map(|entry| self.at(entry.rule)).map(|compiled| &compiled.rule))
    }

    pub(super) fn facts<'a>(&self, request: &Request<'a>) -> Result<Facts<'a>, TrypemaError> {
        Facts::of(request, |name| self.attributes.get(name).copied())
    }

    /// The rules that apply, in their order.
    pub(super) fn find(&self, facts: &Facts<'_>) -> Result<Found, TrypemaError> {
        let accepts = |rule: u32| self.at(rule).is_some_and(|rule| rule.has_values(facts));
        let found = self.index.find(facts, &accepts);
        if found.are_too_many {
            let reason = format!("more than {} rules apply to it", crate::check::MAX_CHECKS);
            return Err(TrypemaError::InvalidRequest { reason });
        }
        Ok(found)
    }

    pub(super) fn at(&self, rule: u32) -> Option<&Compiled> {
        self.rules.get(rule as usize)
    }

    /// Whether a list decides by itself, and by which attribute. Being blocked goes before being allowed.
    pub(super) fn listed(&self, facts: &Facts<'_>) -> Option<(KeyVerdict, u16)> {
        let listed_in = |list: &Map<u16, Map<Box<str>, ()>>| {
            let is_listed = |attribute: &u16| {
                let value = facts.value(*attribute);
                list.get(attribute).zip(value).is_some_and(|(values, value)| values.contains_key(value))
            };
            if list.is_empty() { None } else { facts.numbers().find(is_listed) }
        };
        listed_in(&self.lists.block)
            .map(|attribute| (KeyVerdict::Block, attribute))
            .or_else(|| listed_in(&self.lists.allow).map(|attribute| (KeyVerdict::Allow, attribute)))
    }

    /// The name of an attribute.
    pub(super) fn attribute_name(&self, attribute: u16) -> &str {
        self.attributes.iter().find(|(_, number)| **number == attribute).map_or("", |(name, _)| name)
    }
}

impl Compiled {
    pub(super) fn has_values(&self, facts: &Facts<'_>) -> bool {
        self.placeholders.iter().all(|placeholder| facts.value(placeholder.attribute).is_some())
    }

    /// What the key of this name gets in place of the rule's limit.
    pub(super) fn special(&self, key: &str) -> Option<&Special> {
        if self.specials.is_empty() { None } else { self.specials.get(key) }
    }

    /// The limit that holds for the key of this name.
    pub(super) fn limit_of(&self, key: &str) -> &Limit {
        match self.special(key) {
            Some(Special::Limit(limit)) => limit,
            _ => &self.limit,
        }
    }

    /// Appends the name of the counter that a request is counted by.
    pub(super) fn write_key(&self, text: &mut String, entry: Entry, facts: &Facts<'_>) {
        let value = |placeholder: &Placeholder| match (&*placeholder.name, &facts.path) {
            ("endpoint", Some(path)) => match self.endpoint_text(entry) {
                Some(pattern) => Value::Text(pattern),
                None => Value::Path(path.as_str()),
            },
            _ => Value::Text(facts.value(placeholder.attribute).unwrap_or_default()),
        };
        let values = self.placeholders.iter().map(|placeholder| (&*placeholder.name, value(placeholder)));
        counter::write(text, &self.rule.id, values);
    }

    /// The endpoint as the rule names it: a caller cannot get a new counter by varying a path.
    fn endpoint_text(&self, entry: Entry) -> Option<&str> {
        self.rule.endpoints.get(entry.endpoint as usize).map(String::as_str)
    }
}

impl index::Filing<'_> {
    /// Files a rule that was checked.
    pub(super) fn of(compiled: &Compiled, attribute: Option<u16>) -> index::Filing<'_> {
        index::Filing { endpoints: &compiled.endpoints, plans: &compiled.rule.plan_tiers, attribute }
    }
}
