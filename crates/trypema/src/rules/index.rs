//! The index: finds the rules that apply to a request without visiting the others.
//!
//! Rules are indexed by endpoint (a tree of path segments), then by method, then by plan, then by one of
//! their conditions, then by the attributes in their keys. Of several conditions, the index uses the one whose
//! values the fewest rules share. Rules with the same attributes and the same other conditions form a group,
//! which is stored under the attribute that the fewest rules use. A lookup follows the request's path and
//! visits only matching entries, so its cost depends on the rules that apply and on the request's attributes,
//! not on the number of rules.

mod bound;
mod by_condition;

use std::sync::Arc;

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use super::condition::CompiledCondition;
use super::endpoint::{EndpointPattern, Segment, methods_of, segments};
use super::request::IndexedSet;
use crate::check::MAX_CHECKS;

use by_condition::ConditionIndex;
pub(super) use by_condition::ConditionKey;

pub(super) type Map<K, V> = HashMap<K, V, RandomState>;

/// A rule, and the endpoint under which it was matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct IndexEntry {
    pub(super) rule: u32,
    /// The index of the endpoint in the rule, or [`IndexEntry::NO_ENDPOINT`] if the rule has no endpoints.
    pub(super) endpoint: u32,
}

impl IndexEntry {
    pub(super) const NO_ENDPOINT: u32 = u32::MAX;
}

/// The properties of a rule that determine its place in the index.
pub(super) struct IndexProperties<'a> {
    pub(super) endpoints: &'a [EndpointPattern],
    pub(super) plans: &'a [String],
    /// The attributes in the rule's key, the one that the fewest rules use first. Empty if the rule applies
    /// to requests without them as well.
    pub(super) attributes: &'a [u16],
    /// The condition that the rule is stored under, if any.
    pub(super) main_condition: Option<&'a CompiledCondition>,
    /// The conditions that a lookup has to test.
    pub(super) tested_conditions: &'a Arc<[CompiledCondition]>,
}

/// An index of rules. See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The rules without endpoints.
    any_endpoint: Plans,
    root: PathNode,
}

/// A node in the tree of path segments.
#[derive(Debug, Default)]
struct PathNode {
    children: Map<Box<str>, PathNode>,
    any: Option<Box<PathNode>>,
    /// The rules for exactly this path.
    exact: Methods,
    /// The rules for this path and everything below it. A lookup passes many nodes, of which few have any.
    prefix: Option<Box<Methods>>,
}

#[derive(Debug, Default)]
struct Methods {
    any: Plans,
    each: Map<Box<str>, Plans>,
}

#[derive(Debug, Default)]
struct Plans {
    any: ConditionIndex,
    each: Map<Box<str>, ConditionIndex>,
}

#[derive(Debug, Default)]
struct AttributeIndex {
    /// The rules that need no attributes and have no other conditions.
    unconditional: Vec<IndexEntry>,
    /// The rules that need no attributes but have other conditions.
    conditional: Vec<RuleGroup>,
    /// All other rules, by the number of their rarest attribute, in ascending order.
    by_attribute: Vec<(u16, Vec<RuleGroup>)>,
}

/// Rules that need the same attributes and have the same conditions, apart from the ones that they are stored
/// under: all of them apply, or none.
#[derive(Debug)]
struct RuleGroup {
    attributes: Box<[u16]>,
    /// Shared by all places of a rule in the index.
    conditions: Arc<[CompiledCondition]>,
    entries: Vec<IndexEntry>,
}

/// The number of groups that a new rule is compared with. More would make compiling slow if every rule has
/// its own conditions; a group that is stored twice costs only time in lookups.
const COMPARED_GROUPS: usize = 16;

impl Index {
    pub(super) fn file(&mut self, rule: u32, filing: &IndexProperties<'_>) {
        if filing.endpoints.is_empty() {
            self.any_endpoint.file(IndexEntry { rule, endpoint: IndexEntry::NO_ENDPOINT }, filing);
        }
        for (number, endpoint) in (0..).zip(filing.endpoints) {
            let node = endpoint.segments.iter().fold(&mut self.root, |node, segment| match segment {
                Segment::Exact(text) => node.children.entry(text.clone()).or_default(),
                Segment::Any => node.any.get_or_insert_default(),
            });
            let methods = match endpoint.is_prefix {
                true => node.prefix.get_or_insert_default(),
                false => &mut node.exact,
            };
            let plans = match &endpoint.method {
                Some(method) => methods.each.entry(method.clone()).or_default(),
                None => &mut methods.any,
            };
            plans.file(IndexEntry { rule, endpoint: number }, filing);
        }
    }

    /// Adds the rules that apply by some of the [paths](IndexedSet::paths) of a request. Rules with `if_missing: deny`
    /// or `error` are indexed without attributes, so they are matched even if the request lacks some.
    pub(super) fn find<'p>(
        &self,
        indexed: &IndexedSet<'_>,
        paths: impl IntoIterator<Item = &'p str>,
        matched: &mut MatchedRules,
    ) {
        self.search(indexed, paths, |by_attributes| by_attributes.find(indexed, matched));
    }

    /// Calls `visit` for every rule whose endpoints, methods, plans and conditions match the request. The arguments are
    /// the number of the rule, and the attribute that the request lacks, if this keeps the rule from
    /// applying. A rule with several endpoints may be visited several times.
    pub(super) fn visit_targeted(&self, indexed: &IndexedSet<'_>, mut visit: impl FnMut(u32, Option<u16>)) {
        let paths = indexed.paths().flatten();
        self.search(indexed, paths, |by_attributes| by_attributes.visit(indexed, &mut visit));
    }

    fn search<'p>(
        &self,
        indexed: &IndexedSet<'_>,
        paths: impl IntoIterator<Item = &'p str>,
        visit: impl FnMut(&AttributeIndex),
    ) {
        let mut search = Search { indexed, visit };
        self.any_endpoint.search(&mut search);
        for path in paths {
            self.root.search(segments(path), &mut search);
        }
    }
}

/// One lookup: calls `visit` with all entries for the request's endpoint, method, plan and values.
struct Search<'a, V> {
    indexed: &'a IndexedSet<'a>,
    visit: V,
}

impl PathNode {
    /// Searches the subtree for the `rest` of a path.
    fn search<'p, V: FnMut(&AttributeIndex)>(
        &self,
        mut rest: impl Iterator<Item = &'p str> + Clone,
        search: &mut Search<'_, V>,
    ) {
        if let Some(prefix) = &self.prefix {
            prefix.search(search);
        }
        let Some(next) = rest.next() else {
            return self.exact.search(search);
        };
        if let Some(any) = &self.any {
            any.search(rest.clone(), search);
        }
        if let Some(child) = self.children.get(next) {
            child.search(rest, search);
        }
    }
}

impl Methods {
    fn search<V: FnMut(&AttributeIndex)>(&self, search: &mut Search<'_, V>) {
        self.any.search(search);
        if self.each.is_empty() {
            return;
        }
        for plans in methods_of(search.indexed.method.as_deref()).filter_map(|method| self.each.get(method)) {
            plans.search(search);
        }
    }
}

impl Plans {
    fn file(&mut self, entry: IndexEntry, filing: &IndexProperties<'_>) {
        if filing.plans.is_empty() {
            self.any.file(entry, filing);
        }
        for plan in filing.plans {
            self.each.entry(plan.as_str().into()).or_default().file(entry, filing);
        }
    }

    fn search<V: FnMut(&AttributeIndex)>(&self, search: &mut Search<'_, V>) {
        self.any.search(search);
        if let Some(plan) = search.indexed.plan.filter(|_| !self.each.is_empty())
            && let Some(by_condition) = self.each.get(plan)
        {
            by_condition.search(search);
        }
    }
}

impl AttributeIndex {
    fn file(&mut self, entry: IndexEntry, attributes: &[u16], conditions: &Arc<[CompiledCondition]>) {
        let groups = match attributes.first() {
            None if conditions.is_empty() => return self.unconditional.push(entry),
            None => &mut self.conditional,
            Some(rarest) => {
                let at = self.position_of(*rarest).unwrap_or_else(|at| {
                    self.by_attribute.insert(at, (*rarest, Vec::new()));
                    at
                });
                &mut self.by_attribute[at].1
            }
        };
        let is_same =
            |group: &&mut RuleGroup| *group.attributes == *attributes && group.conditions == *conditions;
        match groups.iter_mut().rev().take(COMPARED_GROUPS).find(is_same) {
            Some(group) => group.entries.push(entry),
            None => groups.push(RuleGroup {
                attributes: attributes.into(),
                conditions: Arc::clone(conditions),
                entries: vec![entry],
            }),
        }
    }

    fn position_of(&self, attribute: u16) -> Result<usize, usize> {
        self.by_attribute.binary_search_by_key(&attribute, |(attribute, _)| *attribute)
    }

    fn find(&self, indexed: &IndexedSet<'_>, matched: &mut MatchedRules) {
        matched.add(&self.unconditional);
        for group in self.conditional.iter().filter(|group| group.applies_to(indexed)) {
            matched.add(&group.entries);
        }
        if self.by_attribute.is_empty() {
            return;
        }
        for attribute in indexed.numbers() {
            let groups = self.position_of(attribute).map_or(&[][..], |at| &self.by_attribute[at].1);
            for group in groups.iter().filter(|group| group.applies_to(indexed)) {
                matched.add(&group.entries);
            }
        }
    }

    fn visit(&self, indexed: &IndexedSet<'_>, visit: &mut impl FnMut(u32, Option<u16>)) {
        self.unconditional.iter().for_each(|entry| visit(entry.rule, None));
        for group in self.groups().filter(|group| group.conditions_hold(indexed)) {
            let missing = group.missing_attribute(indexed);
            group.entries.iter().for_each(|entry| visit(entry.rule, missing));
        }
    }

    fn groups(&self) -> impl Iterator<Item = &RuleGroup> {
        self.conditional.iter().chain(self.by_attribute.iter().flat_map(|(_, groups)| groups))
    }
}

impl RuleGroup {
    fn applies_to(&self, indexed: &IndexedSet<'_>) -> bool {
        self.missing_attribute(indexed).is_none() && self.conditions_hold(indexed)
    }

    fn conditions_hold(&self, indexed: &IndexedSet<'_>) -> bool {
        self.conditions.iter().all(|condition| condition.holds(indexed))
    }

    /// Returns the first attribute of the group that the request lacks.
    fn missing_attribute(&self, indexed: &IndexedSet<'_>) -> Option<u16> {
        self.attributes.iter().copied().find(|attribute| indexed.value(*attribute).is_none())
    }
}

/// The rules that apply to a request, in order of priority, each once.
#[derive(Debug)]
pub(super) struct MatchedRules {
    entries: [IndexEntry; MAX_CHECKS],
    len: usize,
    /// Whether more than [`MAX_CHECKS`] rules apply.
    pub(super) are_too_many: bool,
}

impl Default for MatchedRules {
    fn default() -> Self {
        Self { entries: [IndexEntry::default(); MAX_CHECKS], len: 0, are_too_many: false }
    }
}

impl IntoIterator for MatchedRules {
    type Item = IndexEntry;
    type IntoIter = std::iter::Take<std::array::IntoIter<IndexEntry, MAX_CHECKS>>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter().take(self.len)
    }
}

impl MatchedRules {
    pub(super) fn as_slice(&self) -> &[IndexEntry] {
        &self.entries[..self.len]
    }

    /// Adds as many of `others` as there is room for. The others are candidates: too many of them must not
    /// fail a request.
    pub(super) fn extend_to_capacity(&mut self, others: Self) {
        let room = MAX_CHECKS - self.len;
        others.into_iter().take(room).for_each(|entry| self.insert(entry));
    }

    fn add(&mut self, entries: &[IndexEntry]) {
        entries.iter().for_each(|entry| self.insert(*entry));
    }

    fn insert(&mut self, entry: IndexEntry) {
        match self.as_slice().binary_search_by_key(&entry.rule, |other| other.rule) {
            // Each rule is checked once, under the first of its matching endpoints.
            Ok(at) => self.entries[at].endpoint = self.entries[at].endpoint.min(entry.endpoint),
            Err(_) if self.len == MAX_CHECKS => self.are_too_many = true,
            Err(at) => {
                self.entries.copy_within(at..self.len, at + 1);
                self.entries[at] = entry;
                self.len += 1;
            }
        }
    }
}
