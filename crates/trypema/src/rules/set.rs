//! Rules that were checked and can be asked: immutable, and quick to search.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use super::address::Network;
use super::compile;
use super::counter::{self, Value};
use super::definition::{KeyVerdict, Rule, Rules};
use super::endpoint::{EndpointPattern, Path};
use super::index::{Entry, Found, Index, Map};
use super::networks::Networks;
use super::problem::InvalidRules;
use super::request::{Facts, Request};
use super::share;
use crate::error::TrypemaError;
use crate::strategy::Limit;

/// The attribute that is a path.
pub(super) const ENDPOINT: &str = "endpoint";

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
    /// The same for candidates.
    pub(super) candidate_index: Index,
    /// Where each is, by id.
    pub(super) ids: Map<Box<str>, u32>,
    /// The numbers of the attributes that matter.
    pub(super) attributes: Map<Box<str>, u16>,
    /// Their names, by number.
    pub(super) attribute_names: Vec<Box<str>>,
    pub(super) lists: Lists,
    /// The candidates of each live rule that has some.
    pub(super) candidates: Map<u32, Vec<u32>>,
    /// See [`RuleSet::most_applying`].
    pub(super) most_applying: usize,
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
    /// Of a candidate, the live rule.
    pub(super) live: Option<u32>,
    /// Of a rule that only logs: how many requests it would have denied since it was loaded.
    pub(super) shadow_denials: AtomicU64,
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

/// Values that decide a request by themselves.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) allow: Vec<List>,
    pub(super) block: Vec<List>,
}

/// Values of one attribute.
#[derive(Debug)]
pub(super) struct List {
    pub(super) attribute: u16,
    pub(super) values: Values,
}

#[derive(Debug)]
pub(super) enum Values {
    Texts(Map<Box<str>, ()>),
    /// Of `endpoint`, as they are compared.
    Paths(Map<Box<str>, ()>),
    /// Of `ip`.
    Networks(Networks),
}

impl List {
    /// Whether a request has one of the values, for certain or perhaps: a path may be read in two ways, and of an IPv6
    /// address only the network may be known.
    fn holds(&self, facts: &Facts<'_>, is_doubt_enough: bool) -> bool {
        let Some(value) = facts.value(self.attribute) else { return false };
        match &self.values {
            Values::Texts(texts) => texts.contains_key(value),
            Values::Paths(paths) => {
                let mut readings = facts.path.iter().flat_map(Path::readings);
                let is_listed = |reading: &str| paths.contains_key(reading);
                if is_doubt_enough { readings.any(is_listed) } else { readings.all(is_listed) }
            }
            Values::Networks(networks) => Network::parse(value).is_some_and(|client| {
                if is_doubt_enough { networks.meet(client) } else { networks.cover(client) }
            }),
        }
    }
}

/// A list decided by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) verdict: KeyVerdict,
    pub(super) attribute: u16,
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
        self.compiled(id).map(|compiled| &compiled.rule)
    }

    pub(super) fn compiled(&self, id: &str) -> Option<&Compiled> {
        self.at(*self.ids.get(id)?)
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules that apply to a request, by priority, wherever its counters are: lists, overrides and shares are
    /// not looked at. Takes time for the rules that apply and not for the others, and allocates nothing for paths without
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
        let found = self.index.find(facts);
        if found.are_too_many {
            let reason = format!("more than {} rules apply to it", crate::check::MAX_CHECKS);
            return Err(TrypemaError::InvalidRequest { reason });
        }
        if self.candidates.is_empty() {
            return Ok(found);
        }
        Ok(found.with_room_for(self.candidate_index.find(facts)))
    }

    /// The rule in whose place a candidate is asked; none of one that only logs, which counts whatever others say.
    pub(super) fn place_of(&self, candidate: &Compiled) -> Option<u32> {
        candidate.live.filter(|live| self.at(*live).is_some_and(|live| !live.rule.is_shadow()))
    }

    pub(super) fn at(&self, rule: u32) -> Option<&Compiled> {
        self.rules.get(rule as usize)
    }

    /// Whether a list decides by itself, and by which attribute. Being blocked goes before being allowed.
    pub(super) fn listed(&self, facts: &Facts<'_>) -> Option<Listed> {
        // In doubt a request is blocked, and not allowed.
        let blocking = self.lists.block.iter().find(|list| list.holds(facts, true));
        let allowing = || self.lists.allow.iter().find(|list| list.holds(facts, false));
        match blocking {
            Some(list) => Some(Listed { verdict: KeyVerdict::Block, attribute: list.attribute }),
            None => allowing().map(|list| Listed { verdict: KeyVerdict::Allow, attribute: list.attribute }),
        }
    }

    /// The name of an attribute.
    pub(super) fn attribute_name(&self, attribute: u16) -> &str {
        self.attribute_names.get(usize::from(attribute)).map_or("", |name| name)
    }
}

impl Compiled {
    /// What the key of this name gets in place of the rule's limit.
    pub(super) fn special(&self, key: &str) -> Option<&Special> {
        if self.specials.is_empty() { None } else { self.specials.get(key) }
    }

    /// Whether the key of this name is asked at all: of a candidate, that may be a share of them.
    pub(super) fn is_asked_for(&self, key: &str) -> bool {
        self.rule.share.is_none_or(|share| share::holds(share, key))
    }

    /// Whether a request may be counted under this name: the id, and a value for each placeholder or a digest of them.
    pub(super) fn has_counter(&self, key: &str) -> bool {
        let Some(values) = key.strip_prefix(&*self.rule.id) else { return false };
        if values.starts_with(counter::DIGESTED) {
            return !self.placeholders.is_empty();
        }
        let mut values = values.split('|').skip(1);
        let has_value = |placeholder: &Placeholder, value: &str| {
            value.strip_prefix(&*placeholder.name).is_some_and(|value| value.starts_with('='))
        };
        let is_named = |placeholder| values.next().is_some_and(|value| has_value(placeholder, value));
        self.placeholders.iter().all(is_named) && values.next().is_none()
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
            (ENDPOINT, Some(path)) => match self.endpoint_text(entry) {
                Some(pattern) => Value::Text(pattern),
                None => Value::Path(path.as_str()),
            },
            (name, _) => Value::of(name, facts.value(placeholder.attribute).unwrap_or_default()),
        };
        let values = self.placeholders.iter().map(|placeholder| (&*placeholder.name, value(placeholder)));
        counter::write(text, &self.rule.id, values);
    }

    /// The name of the counter of these values, each in any way that a request may write it: what overrides and operators
    /// name is counted where requests are.
    pub(super) fn counter_of(&self, values: &BTreeMap<String, String>) -> String {
        let path = values.get(ENDPOINT).map(|text| Path::new(text));
        let value = |name: &str, text| match &path {
            Some(path) if name == ENDPOINT => match self.endpoint_like(path) {
                Some(pattern) => Value::Text(pattern),
                None => Value::Path(path.as_str()),
            },
            _ => Value::of(name, text),
        };
        let mut text = String::new();
        let values = values.iter().map(|(name, text)| (name.as_str(), value(name, text)));
        counter::write(&mut text, &self.rule.id, values);
        text
    }

    /// The endpoint of the rule that is written like this path, but for needless slashes and encodings.
    pub(super) fn endpoint_like(&self, path: &Path<'_>) -> Option<&str> {
        let mut endpoints = self.rule.endpoints.iter();
        endpoints.find(|endpoint| Path::new(endpoint).as_str() == path.as_str()).map(String::as_str)
    }

    /// The endpoint as the rule names it: a caller cannot get a new counter by varying a path.
    fn endpoint_text(&self, entry: Entry) -> Option<&str> {
        self.rule.endpoints.get(entry.endpoint as usize).map(String::as_str)
    }
}
