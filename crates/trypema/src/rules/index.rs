//! Finding the rules that apply without looking at those that cannot.
//!
//! Rules are filed by endpoint (a tree of path segments), then by method, then by plan, then by the one of their
//! placeholders that the fewest rules ask for. A request goes down the tree and looks into what matches it only, so that
//! its cost grows with the rules that may apply, and with its own attributes.

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use super::endpoint::{EndpointPattern, Segment};
use super::request::Facts;
use crate::check::MAX_CHECKS;

pub(super) type Map<K, V> = HashMap<K, V, RandomState>;

/// A rule that applies, and which of its endpoints matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Entry {
    pub(super) rule: u32,
    /// [`Entry::NO_ENDPOINT`] for rules that have none.
    pub(super) endpoint: u32,
}

impl Entry {
    pub(super) const NO_ENDPOINT: u32 = u32::MAX;
}

/// What is to be known of a rule to file it.
pub(super) struct Filing<'a> {
    pub(super) endpoints: &'a [EndpointPattern],
    pub(super) plans: &'a [String],
    /// The placeholder that the fewest rules have.
    pub(super) attribute: Option<u16>,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    /// Rules for all endpoints.
    everywhere: Plans,
    root: Node,
}

/// A place in the tree of endpoints.
#[derive(Debug, Default)]
struct Node {
    children: Map<Box<str>, Node>,
    any: Option<Box<Node>>,
    /// Rules for exactly this path.
    here: Methods,
    /// Rules for this path and all below.
    below: Methods,
}

#[derive(Debug, Default)]
struct Methods {
    any: Plans,
    each: Map<Box<str>, Plans>,
}

#[derive(Debug, Default)]
struct Plans {
    any: Filed,
    each: Map<Box<str>, Filed>,
}

#[derive(Debug, Default)]
struct Filed {
    /// Rules without placeholders.
    plain: Vec<Entry>,
    /// The others, in the order of their attributes' numbers.
    by_attribute: Vec<(u16, Vec<Entry>)>,
}

impl Index {
    pub(super) fn file(&mut self, rule: u32, filing: &Filing<'_>) {
        if filing.endpoints.is_empty() {
            self.everywhere.file(Entry { rule, endpoint: Entry::NO_ENDPOINT }, filing);
        }
        for (number, endpoint) in (0..).zip(filing.endpoints) {
            let node = endpoint.segments.iter().fold(&mut self.root, |node, segment| match segment {
                Segment::Exactly(text) => node.children.entry(text.clone()).or_default(),
                Segment::Any => node.any.get_or_insert_default(),
            });
            let methods = if endpoint.is_open { &mut node.below } else { &mut node.here };
            let plans = match &endpoint.method {
                Some(method) => methods.each.entry(method.clone()).or_default(),
                None => &mut methods.any,
            };
            plans.file(Entry { rule, endpoint: number }, filing);
        }
    }

    /// The rules that apply, in their order, if `accepts` them: those filed under one placeholder may lack another.
    pub(super) fn find(&self, facts: &Facts<'_>, accepts: &dyn Fn(u32) -> bool) -> Found {
        let mut search = Search { facts, accepts, found: Found::default() };
        self.everywhere.search(&mut search);
        if let Some(path) = &facts.path {
            self.root.search(path.segments(), &mut search);
        }
        search.found
    }
}

/// One request's way through the index.
struct Search<'a> {
    facts: &'a Facts<'a>,
    accepts: &'a dyn Fn(u32) -> bool,
    found: Found,
}

impl Search<'_> {
    fn add(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| (self.accepts)(entry.rule)) {
            self.found.insert(*entry);
        }
    }
}

impl Node {
    /// Looks for what matches the `rest` of a path.
    fn search<'p>(&self, mut rest: impl Iterator<Item = &'p str> + Clone, search: &mut Search<'_>) {
        self.below.search(search);
        let Some(next) = rest.next() else {
            return self.here.search(search);
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
    fn search(&self, search: &mut Search<'_>) {
        self.any.search(search);
        if let Some(method) = search.facts.method.filter(|_| !self.each.is_empty())
            && let Some(plans) = self.each.get(method)
        {
            plans.search(search);
        }
    }
}

impl Plans {
    fn file(&mut self, entry: Entry, filing: &Filing<'_>) {
        if filing.plans.is_empty() {
            self.any.file(entry, filing.attribute);
        }
        for plan in filing.plans {
            self.each.entry(plan.as_str().into()).or_default().file(entry, filing.attribute);
        }
    }

    fn search(&self, search: &mut Search<'_>) {
        self.any.search(search);
        if let Some(plan) = search.facts.plan.filter(|_| !self.each.is_empty())
            && let Some(filed) = self.each.get(plan)
        {
            filed.search(search);
        }
    }
}

impl Filed {
    fn file(&mut self, entry: Entry, attribute: Option<u16>) {
        match attribute {
            Some(attribute) => match self.place(attribute) {
                Ok(at) => self.by_attribute[at].1.push(entry),
                Err(at) => self.by_attribute.insert(at, (attribute, vec![entry])),
            },
            None => self.plain.push(entry),
        }
    }

    fn place(&self, attribute: u16) -> Result<usize, usize> {
        self.by_attribute.binary_search_by_key(&attribute, |(attribute, _)| *attribute)
    }

    fn search(&self, search: &mut Search<'_>) {
        search.add(&self.plain);
        if self.by_attribute.is_empty() {
            return;
        }
        for attribute in search.facts.numbers() {
            if let Ok(at) = self.place(attribute) {
                search.add(&self.by_attribute[at].1);
            }
        }
    }
}

/// The rules that apply to a request, in their order, each once.
#[derive(Debug)]
pub(super) struct Found {
    entries: [Entry; MAX_CHECKS],
    len: usize,
    /// Whether there were more than can be asked together.
    pub(super) are_too_many: bool,
}

impl Default for Found {
    fn default() -> Self {
        Self { entries: [Entry::default(); MAX_CHECKS], len: 0, are_too_many: false }
    }
}

impl IntoIterator for Found {
    type Item = Entry;
    type IntoIter = std::iter::Take<std::array::IntoIter<Entry, MAX_CHECKS>>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter().take(self.len)
    }
}

impl Found {
    pub(super) fn as_slice(&self) -> &[Entry] {
        &self.entries[..self.len]
    }

    fn insert(&mut self, entry: Entry) {
        match self.as_slice().binary_search_by_key(&entry.rule, |other| other.rule) {
            // A rule is asked once, under the first of its endpoints.
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
