//! Compiled rules: immutable and indexed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::address::CanonicalNetwork;
use super::compile;
use super::condition::CompiledCondition;
use super::counter::{self, PlaceholderValue};
use super::definition::{KeyVerdict, Rule, Rules};
use super::endpoint::{EndpointPattern, Path, canonical, is_upper_case, upper_case_method};
use super::hashing::HashedAttributes;
use super::index::{Index, IndexEntry, Map, MatchedRules};
use super::networks::Networks;
use super::problem::InvalidRules;
use super::request::{AttributeSet, IndexedSet, REQUESTS, Request};
use super::share;
use crate::error::TrypemaError;
use crate::strategy::Limit;

/// The attribute that contains a path.
pub(super) const ENDPOINT: &str = "endpoint";

/// The attribute that contains an HTTP method.
pub(super) const METHOD: &str = "method";

/// Valid rules, indexed so that rules that do not apply to a request cost it nothing.
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
    /// The rules, by priority.
    pub(super) rules: Vec<CompiledRule>,
    pub(super) index: Index,
    /// The index of the candidates.
    pub(super) candidate_index: Index,
    /// The position of each rule in `rules`, by id.
    pub(super) ids: Map<Box<str>, u32>,
    /// The numbers of the attributes that rules and lists use.
    pub(super) attributes: Map<Box<str>, u16>,
    /// The names of these attributes, by number.
    pub(super) attribute_names: Vec<Box<str>>,
    /// The declared units, without `requests`.
    pub(super) units: Vec<Box<str>>,
    pub(super) lists: Lists,
    /// The candidates of each live rule that has any.
    pub(super) candidates: Map<u32, Vec<u32>>,
    /// See [`RuleSet::applying_upper_bound`].
    pub(super) applying_upper_bound: usize,
    pub(super) hashed: Option<Arc<HashedAttributes>>,
}

/// A compiled rule.
#[derive(Debug)]
pub(super) struct CompiledRule {
    pub(super) rule: Rule,
    pub(super) limit: Limit,
    pub(super) endpoints: Vec<EndpointPattern>,
    pub(super) conditions: Vec<CompiledCondition>,
    /// The placeholders, in alphabetical order.
    pub(super) placeholders: Vec<Placeholder>,
    /// The overrides, by counter name.
    pub(super) overrides_by_key: Map<Box<str>, OverrideAction>,
    /// Those whose counter name is a digest, with the values of their keys, which the name does not tell.
    pub(super) overrides_of_long_keys: Vec<(BTreeMap<String, String>, OverrideAction)>,
    /// The hashes of the rule's placeholders, if some of them are hashed.
    pub(super) hashed: Option<Arc<HashedAttributes>>,
    /// For a candidate, the number of its live rule.
    pub(super) live: Option<u32>,
    /// For a log-only rule, the number of requests that it would have denied since it was loaded.
    pub(super) shadow_denials: AtomicU64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placeholder {
    pub(super) name: Box<str>,
    pub(super) attribute: u16,
}

/// An override for a single key, in place of the rule's limit.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum OverrideAction {
    Limit(Limit),
    Verdict(KeyVerdict),
}

/// The allow lists and block lists, which decide a request without any rule.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) allow: Vec<List>,
    pub(super) block: Vec<List>,
}

/// The listed values of one attribute.
#[derive(Debug)]
pub(super) struct List {
    pub(super) attribute: u16,
    pub(super) values: Values,
}

#[derive(Debug, PartialEq)]
pub(super) enum Values {
    Texts(Map<Box<str>, ()>),
    /// Values of `endpoint`, in normal form.
    Paths(Map<Box<str>, ()>),
    /// Values of `method`, in upper case, which block methods in any case.
    MethodsInAnyCase(Map<Box<str>, ()>),
    /// Values of `ip`.
    Networks(Networks),
}

impl List {
    /// Returns the entry that a request matches. A match can be uncertain: a path may have several readings, an
    /// IPv6 client may be known only by its network, and not every application serves `post` as `POST`. An
    /// uncertain match counts for a block list, but not for an allow list.
    fn entry_for(&self, indexed: &IndexedSet<'_>, verdict: KeyVerdict) -> Option<String> {
        let value = indexed.value(self.attribute)?;
        let is_doubt_enough = verdict == KeyVerdict::Block;
        match &self.values {
            Values::Texts(texts) => texts.contains_key(value).then(|| value.to_owned()),
            Values::MethodsInAnyCase(methods) => {
                let method = upper_case_method(value);
                methods.contains_key(&*method).then(|| method.into_owned())
            }
            Values::Paths(paths) => {
                let mut readings = indexed.path.iter().flat_map(Path::readings);
                let is_listed = |reading: &&str| paths.contains_key(*reading);
                if is_doubt_enough {
                    readings.find(is_listed).map(str::to_owned)
                } else {
                    let first = readings.next().filter(is_listed)?;
                    readings.all(|reading| is_listed(&reading)).then(|| first.to_owned())
                }
            }
            Values::Networks(networks) => {
                let client = CanonicalNetwork::parse(value)?;
                let entry =
                    if is_doubt_enough { networks.meeting(client) } else { networks.covering(client) };
                entry.map(|network| network.to_string())
            }
        }
    }
}

/// A rule that matches a request by one of its paths.
#[derive(Debug, Clone, Copy)]
pub(super) struct MatchedPath<'p> {
    pub(super) entry: IndexEntry,
    /// The path; `None` if the request has none.
    pub(super) path: Option<&'p str>,
}

/// The verdict of a list, and the attribute and the entry that matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListMatch {
    pub(super) verdict: KeyVerdict,
    pub(super) attribute: u16,
    pub(super) entry: String,
}

impl RuleSet {
    /// Validates and indexes rules. The error contains all problems.
    pub fn compile(rules: &Rules) -> Result<Self, InvalidRules> {
        compile::compile(rules)
    }

    /// Returns the rules by priority, including disabled ones.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(|compiled| &compiled.rule)
    }

    /// Returns the rule with this id.
    pub fn rule(&self, id: &str) -> Option<&Rule> {
        self.compiled(id).map(|compiled| &compiled.rule)
    }

    pub(super) fn compiled(&self, id: &str) -> Option<&CompiledRule> {
        self.at(*self.ids.get(id)?)
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the units that a request may name: `requests`, and the declared ones.
    pub fn units(&self) -> impl Iterator<Item = &str> {
        std::iter::once(REQUESTS).chain(self.units.iter().map(|unit| &**unit))
    }

    /// Returns the rules that match a request, by priority. Ignores lists, overrides, shares and costs. The
    /// time depends on the number of matching rules and not on the size of the set. Allocates nothing if the
    /// path has no percent-encoding, no empty and dot segments, and no backslashes.
    pub fn matching(&self, request: &Request<'_>) -> Result<impl Iterator<Item = &Rule>, TrypemaError> {
        self.validate(request)?;
        let mut found = MatchedRules::default();
        for set in request.sets() {
            let indexed = self.index_set(*set);
            indexed.refuse_ambiguous_path()?;
            self.find(&indexed, indexed.paths().flatten(), &mut found)?;
        }
        Ok(found.into_iter().filter_map(|entry| self.at(entry.rule)).map(|compiled| &compiled.rule))
    }

    /// Fails if a request exceeds a bound, or names a unit that is not declared.
    pub(super) fn validate(&self, request: &Request<'_>) -> Result<(), TrypemaError> {
        request.check_bounds()?;
        let is_declared = |name: &str| self.units.iter().any(|unit| **unit == *name);
        let mut named = request.sets().iter().flat_map(AttributeSet::named_units);
        match named.find(|name| !is_declared(name)) {
            None => Ok(()),
            Some(unknown) => {
                let unknown: String = unknown.chars().take(compile::MAX_ID_BYTES).collect();
                let declared = self.units().collect::<Vec<_>>().join(", ");
                let reason = format!("unit {unknown:?} is not declared by the rules, which have {declared}");
                Err(TrypemaError::InvalidRequest { reason })
            }
        }
    }

    /// Prepares a set of a [valid](Self::validate) request.
    pub(super) fn index_set<'a>(&self, set: AttributeSet<'a>) -> IndexedSet<'a> {
        IndexedSet::new(set, |name| self.attributes.get(name).copied())
    }

    /// Adds the rules that match by some of the [paths](IndexedSet::paths) of a request, by priority, including as many
    /// candidates as there is room for.
    pub(super) fn find<'p>(
        &self,
        indexed: &IndexedSet<'_>,
        paths: impl IntoIterator<Item = &'p str> + Clone,
        found: &mut MatchedRules,
    ) -> Result<(), TrypemaError> {
        self.index.find(indexed, paths.clone(), found);
        if found.are_too_many {
            return Err(too_many_rules());
        }
        if !self.candidates.is_empty() {
            let mut candidates = MatchedRules::default();
            self.candidate_index.find(indexed, paths, &mut candidates);
            found.extend_to_capacity(candidates);
        }
        Ok(())
    }

    /// Returns the live rule that a candidate is evaluated in place of. `None` if that rule is log-only: then
    /// the candidate counts on its own, as the log-only rule does.
    pub(super) fn live_rule_in_force(&self, candidate: &CompiledRule) -> Option<u32> {
        candidate.live.filter(|live| self.at(*live).is_some_and(|live| !live.rule.is_shadow()))
    }

    /// Returns the rule that has a counter of this name.
    pub(super) fn rule_of_counter(&self, key: &str) -> Option<&CompiledRule> {
        self.compiled(counter::rule_of(key)).filter(|rule| rule.has_counter(key))
    }

    pub(super) fn at(&self, rule: u32) -> Option<&CompiledRule> {
        self.rules.get(rule as usize)
    }

    /// Returns the block list entry that an attribute set matches, if any.
    pub(super) fn block_match(&self, indexed: &IndexedSet<'_>) -> Option<ListMatch> {
        self.match_of(&self.lists.block, indexed, KeyVerdict::Block)
    }

    /// Returns the allow list entry that an attribute set matches, if any.
    pub(super) fn allow_match(&self, indexed: &IndexedSet<'_>) -> Option<ListMatch> {
        self.match_of(&self.lists.allow, indexed, KeyVerdict::Allow)
    }

    fn match_of(&self, lists: &[List], indexed: &IndexedSet<'_>, verdict: KeyVerdict) -> Option<ListMatch> {
        lists.iter().find_map(|list| {
            let attribute = list.attribute;
            let entry = self.shown_value(attribute, list.entry_for(indexed, verdict)?);
            Some(ListMatch { verdict, attribute, entry })
        })
    }

    /// Returns the name of an attribute.
    pub(super) fn attribute_name(&self, attribute: u16) -> &str {
        self.attribute_names.get(usize::from(attribute)).map_or("", |name| name)
    }
}

pub(super) fn too_many_rules() -> TrypemaError {
    let reason = format!("more than {} rules apply to this request", crate::check::MAX_CHECKS);
    TrypemaError::InvalidRequest { reason }
}

impl CompiledRule {
    /// Returns the override for a counter name, if there is one.
    pub(super) fn override_of(&self, key: &str) -> Option<&OverrideAction> {
        if self.overrides_by_key.is_empty() { None } else { self.overrides_by_key.get(key) }
    }

    /// Whether the rule is evaluated for a counter name. Only candidates with a share leave names out.
    pub(super) fn is_in_share(&self, key: &str) -> bool {
        self.rule.share.is_none_or(|share| share::contains(share, key))
    }

    /// Whether the rule has counters of this form: its id, and a value for each placeholder or a digest of
    /// all values.
    pub(super) fn has_counter(&self, key: &str) -> bool {
        let Some(values) = key.strip_prefix(&*self.rule.id) else { return false };
        if values.starts_with(counter::DIGEST_SEPARATOR) {
            return !self.placeholders.is_empty();
        }
        let mut values = values.as_bytes().split(|byte| *byte == b'|').skip(1);
        let has_value = |placeholder: &Placeholder, value: &[u8]| {
            value.strip_prefix(placeholder.name.as_bytes()).is_some_and(|value| value.starts_with(b"="))
        };
        let is_named = |placeholder| values.next().is_some_and(|value| has_value(placeholder, value));
        self.placeholders.iter().all(is_named) && values.next().is_none()
    }

    /// Returns the limit for a counter name: that of its override, or the rule's.
    pub(super) fn limit_of(&self, key: &str) -> &Limit {
        match self.override_of(key) {
            Some(OverrideAction::Limit(limit)) => limit,
            _ => &self.limit,
        }
    }

    /// Whether the rule has a counter for each endpoint.
    pub(super) fn counts_by_endpoint(&self) -> bool {
        self.has_placeholder_named(ENDPOINT)
    }

    /// Whether an override that exempts a key holds for a request. It does not for `get` if it is for `GET`,
    /// because not every application reads the two as one.
    pub(super) fn is_exempted_exactly(&self, indexed: &IndexedSet<'_>) -> bool {
        let mut of_method = self.placeholders.iter().filter(|placeholder| &*placeholder.name == METHOD);
        of_method.all(|placeholder| indexed.value(placeholder.attribute).is_none_or(is_upper_case))
    }

    fn has_placeholder_named(&self, name: &str) -> bool {
        self.placeholders.iter().any(|placeholder| &*placeholder.name == name)
    }

    /// Appends the name of the counter of a request, by one of its [paths](IndexedSet::paths).
    pub(super) fn write_key(&self, text: &mut String, matched: MatchedPath<'_>, indexed: &IndexedSet<'_>) {
        let value = |placeholder: &Placeholder| match (&*placeholder.name, matched.path) {
            (ENDPOINT, Some(path)) => match self.endpoint_text(matched.entry) {
                Some(pattern) => PlaceholderValue::Text(pattern),
                None => PlaceholderValue::Path(path),
            },
            (name, _) => PlaceholderValue::of(name, indexed.value(placeholder.attribute).unwrap_or_default()),
        };
        let values = self.placeholders.iter().map(|placeholder| {
            (&*placeholder.name, self.counted_value(&placeholder.name, value(placeholder)))
        });
        counter::write(text, &self.rule.id, values);
    }

    /// Returns the counter name for these values, which may have any spelling that a request may have. Thus
    /// overrides and operators name the counter that requests use.
    pub(super) fn counter_of(&self, values: &BTreeMap<String, String>) -> String {
        let path = values.get(ENDPOINT).map(|text| canonical(text));
        let value = |name: &str, text| match &path {
            Some(path) if name == ENDPOINT => match self.endpoint_like(path) {
                Some(pattern) => PlaceholderValue::Text(pattern),
                None => PlaceholderValue::Path(path),
            },
            _ => PlaceholderValue::of(name, text),
        };
        let mut text = String::new();
        let values = values.iter();
        let values = values.map(|(name, text)| (name.as_str(), self.named_value(name, value(name, text))));
        counter::write(&mut text, &self.rule.id, values);
        text
    }

    /// Returns the rule's endpoint that equals this canonical path, ignoring needless slashes and encodings.
    pub(super) fn endpoint_like(&self, path: &str) -> Option<&str> {
        let mut endpoints = self.rule.endpoints.iter();
        endpoints.find(|endpoint| canonical(endpoint) == path).map(String::as_str)
    }

    /// Returns the endpoint as written in the rule. It replaces the path in the counter name, so that a
    /// client does not get a new counter by varying the path.
    fn endpoint_text(&self, entry: IndexEntry) -> Option<&str> {
        self.rule.endpoints.get(entry.endpoint as usize).map(String::as_str)
    }
}
