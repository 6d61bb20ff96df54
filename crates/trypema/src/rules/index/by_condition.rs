//! The part of the index that finds rules by a condition on an attribute's value.

use super::bound::ChecksOf;
use super::{AttributeIndex, IndexEntry, IndexProperties, Map, Search};
use crate::rules::condition::{CompiledCondition, Test, TextPattern};

/// Rules by the condition that they are stored under.
#[derive(Debug, Default)]
pub(super) struct ConditionIndex {
    /// The rules that are stored under no condition: those without any, and those with only negations.
    any: AttributeIndex,
    /// The rules that need a value, by the number of the attribute, in ascending order.
    present: Vec<(u16, ValueIndex)>,
    /// The rules that need an attribute to be absent, by its number, in ascending order.
    absent: Vec<(u16, AttributeIndex)>,
}

/// Rules by the value of one attribute.
#[derive(Debug, Default)]
struct ValueIndex {
    exact: Map<Box<str>, AttributeIndex>,
    /// By the text before the first `*`.
    prefixes: AffixIndex,
    /// By the text after the last `*`, if there is none before the first.
    suffixes: AffixIndex,
    /// The rules with a pattern that has neither.
    any: AttributeIndex,
}

/// Rules by the start or by the end of a value.
#[derive(Debug, Default)]
struct AffixIndex {
    /// The lengths in bytes that occur, in ascending order.
    lengths: Vec<usize>,
    each: Map<Box<str>, AttributeIndex>,
}

/// The place of a pattern in a [`ConditionIndex`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::rules) enum ConditionKey<'a> {
    Exact(&'a str),
    Prefix(&'a str),
    Suffix(&'a str),
    Any,
    Absent,
}

impl CompiledCondition {
    /// Returns the places under which the condition can be stored. Negations have none.
    pub(in crate::rules) fn keys(&self) -> impl Iterator<Item = ConditionKey<'_>> {
        let (patterns, absent) = match &self.test {
            Test::OneOf(patterns) => (&**patterns, None),
            Test::NoneOf(_) => (&[][..], None),
            Test::Absent => (&[][..], Some(ConditionKey::Absent)),
        };
        patterns.iter().map(key_of).chain(absent)
    }

    /// Whether every request found under one of the [keys](Self::keys) fulfils the condition.
    pub(in crate::rules) fn is_certain(&self) -> bool {
        self.keys().all(|key| matches!(key, ConditionKey::Exact(_) | ConditionKey::Absent))
    }
}

fn key_of(pattern: &TextPattern) -> ConditionKey<'_> {
    match (pattern.prefix(), pattern.suffix()) {
        (text, _) if pattern.is_exact() => ConditionKey::Exact(text),
        ("", "") => ConditionKey::Any,
        ("", suffix) => ConditionKey::Suffix(suffix),
        (prefix, _) => ConditionKey::Prefix(prefix),
    }
}

impl ConditionIndex {
    pub(super) fn file(&mut self, entry: IndexEntry, filing: &IndexProperties<'_>) {
        let (attributes, tested) = (filing.attributes, filing.tested_conditions);
        let Some(main) = filing.main_condition else { return self.any.file(entry, attributes, tested) };
        for key in main.keys() {
            self.place(main.attribute, key).file(entry, attributes, tested);
        }
    }

    /// Returns the rules that are stored under a key.
    fn place(&mut self, attribute: u16, key: ConditionKey<'_>) -> &mut AttributeIndex {
        if key == ConditionKey::Absent {
            return at(&mut self.absent, attribute);
        }
        let values = at(&mut self.present, attribute);
        match key {
            ConditionKey::Exact(text) => values.exact.entry(text.into()).or_default(),
            ConditionKey::Prefix(text) => values.prefixes.place(text),
            ConditionKey::Suffix(text) => values.suffixes.place(text),
            ConditionKey::Any | ConditionKey::Absent => &mut values.any,
        }
    }

    #[inline]
    pub(super) fn search<V: FnMut(&AttributeIndex)>(&self, search: &mut Search<'_, V>) {
        (search.visit)(&self.any);
        if !self.present.is_empty() || !self.absent.is_empty() {
            self.search_conditions(search);
        }
    }

    /// Not inlined, so that a lookup of rules without conditions pays only for the test that there are none.
    #[inline(never)]
    fn search_conditions<V: FnMut(&AttributeIndex)>(&self, search: &mut Search<'_, V>) {
        for attribute in search.indexed.numbers() {
            let found = self.present.binary_search_by_key(&attribute, |(attribute, _)| *attribute);
            if let (Ok(at), Some(value)) = (found, search.indexed.value(attribute)) {
                self.present[at].1.search(value, &mut search.visit);
            }
        }
        for (attribute, rules) in &self.absent {
            if search.indexed.value(*attribute).is_none() {
                (search.visit)(rules);
            }
        }
    }

    /// Returns an upper bound on the number of checks. A request has one value of an attribute, or none.
    pub(super) fn max_checks(&self, checks_of: ChecksOf<'_>) -> usize {
        let of_absent = |attribute: u16| {
            let found = self.absent.binary_search_by_key(&attribute, |(attribute, _)| *attribute);
            found.map_or(0, |at| self.absent[at].1.max_checks(checks_of))
        };
        let is_only_absent = |attribute: u16| {
            self.present.binary_search_by_key(&attribute, |(attribute, _)| *attribute).is_err()
        };
        let present = self
            .present
            .iter()
            .map(|(attribute, values)| values.max_checks(checks_of).max(of_absent(*attribute)));
        let absent = self.absent.iter().filter(|(attribute, _)| is_only_absent(*attribute));
        let absent = absent.map(|(_, rules)| rules.max_checks(checks_of));
        self.any.max_checks(checks_of) + present.sum::<usize>() + absent.sum::<usize>()
    }
}

/// Returns the value of an attribute in a sorted list, adding it if it is new.
fn at<T: Default>(list: &mut Vec<(u16, T)>, attribute: u16) -> &mut T {
    let at = list.binary_search_by_key(&attribute, |(attribute, _)| *attribute).unwrap_or_else(|at| {
        list.insert(at, (attribute, T::default()));
        at
    });
    &mut list[at].1
}

impl ValueIndex {
    fn search(&self, value: &str, visit: &mut impl FnMut(&AttributeIndex)) {
        if let Some(rules) = self.exact.get(value) {
            visit(rules);
        }
        self.prefixes.search(|len| value.get(..len), visit);
        self.suffixes.search(|len| value.len().checked_sub(len).and_then(|start| value.get(start..)), visit);
        visit(&self.any);
    }

    fn max_checks(&self, checks_of: ChecksOf<'_>) -> usize {
        let prefixes = self.prefixes.max_checks(checks_of, |text, len| text.get(..len));
        let suffixes = self.suffixes.max_checks(checks_of, |text, len| text.get(text.len() - len..));
        let exact = self.exact.values().map(|rules| rules.max_checks(checks_of)).max().unwrap_or(0);
        exact + prefixes + suffixes + self.any.max_checks(checks_of)
    }
}

impl AffixIndex {
    fn place(&mut self, text: &str) -> &mut AttributeIndex {
        if let Err(at) = self.lengths.binary_search(&text.len()) {
            self.lengths.insert(at, text.len());
        }
        self.each.entry(text.into()).or_default()
    }

    /// `affix` returns the part of the value that has this length, if there is one.
    fn search<'v>(&self, affix: impl Fn(usize) -> Option<&'v str>, visit: &mut impl FnMut(&AttributeIndex)) {
        let parts = self.lengths.iter().filter_map(|len| affix(*len));
        parts.filter_map(|text| self.each.get(text)).for_each(visit);
    }

    /// Returns an upper bound on the number of checks of the rules that one value finds: those under one text, and
    /// under all shorter texts that it starts or ends with.
    fn max_checks(&self, checks_of: ChecksOf<'_>, affix: impl Fn(&str, usize) -> Option<&str>) -> usize {
        let found_by = |text: &str| {
            let lengths = self.lengths.iter().take_while(|len| **len <= text.len());
            let parts = lengths.filter_map(|len| affix(text, *len));
            parts.filter_map(|part| self.each.get(part)).map(|rules| rules.max_checks(checks_of)).sum()
        };
        self.each.keys().map(|text| found_by(text)).max().unwrap_or(0)
    }
}
