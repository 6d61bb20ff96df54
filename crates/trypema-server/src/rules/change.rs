//! The differences between two rule sets, item by item.

use std::collections::BTreeMap;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trypema::rules::{Override, Rule, Rules, normalize_path};

/// One item of a rule set.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Item {
    /// A unit that rules count.
    Unit(Unit),
    /// A rule.
    Rule(Box<Rule>),
    /// An override of a rule's limit for a single key.
    Override(Box<Override>),
    /// A value on a list.
    ListEntry(ListEntry),
    /// A row that cannot be parsed, as raw JSON.
    Unreadable(serde_json::Value),
}

/// A unit that rules count, besides requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Unit {
    pub(crate) name: String,
}

/// A value on a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ListEntry {
    pub(crate) list: ListName,
    pub(crate) attribute: String,
    pub(crate) value: String,
}

/// The name of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ListName {
    /// Requests with one of its values pass every rule.
    Allow,
    /// Requests with one of its values are denied.
    Block,
}

/// The kind of an item, in the order in which changes are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ItemKind {
    /// A unit that rules count.
    Unit,
    /// A rule.
    Rule,
    /// An override of a rule for one key.
    Override,
    /// A value on a list.
    List,
}

/// The identity of an item within a rule set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ItemName {
    pub(crate) kind: ItemKind,
    /// The name of a unit; the id of a rule; the rule and the key of an override; or the list, the attribute and the
    /// value of an entry. People read it.
    pub(crate) name: String,
}

/// One difference between two rule sets.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct StoredChange {
    /// The kind of the item.
    pub(crate) kind: ItemKind,
    /// The name of the item: the name of a unit; the id of a rule; the rule and the key of an override; or
    /// the list, the attribute and the value of an entry.
    pub(crate) name: String,
    /// The item before the change; `null` if there was none.
    pub(crate) before: Option<Item>,
    /// The item after the change; `null` if it is removed.
    pub(crate) after: Option<Item>,
}

impl Item {
    pub(crate) fn rule(rule: Rule) -> Self {
        Self::Rule(Box::new(canonical_rule(rule)))
    }

    /// Returns the identity of the item, or `None` for a row that cannot be parsed.
    pub(crate) fn name(&self) -> Option<ItemName> {
        let (kind, name) = match self {
            Self::Unit(unit) => (ItemKind::Unit, unit.name.clone()),
            Self::Rule(rule) => return Some(ItemName::of_rule(&rule.id)),
            Self::Override(item) => return Some(ItemName::of_override(item)),
            Self::ListEntry(ListEntry { list, attribute, value }) => {
                let list = if *list == ListName::Allow { "allow" } else { "block" };
                (ItemKind::List, format!("{list} {attribute} {value}"))
            }
            Self::Unreadable(_) => return None,
        };
        Some(ItemName { kind, name })
    }

    /// Returns all items of a rule set.
    pub(crate) fn all(rules: &Rules) -> BTreeMap<ItemName, Self> {
        let units = rules.units.iter().map(|name| Self::Unit(Unit { name: name.clone() }));
        let items = units.chain(rules.rules.iter().cloned().map(Self::rule));
        let items = items.chain(rules.overrides.iter().map(|one| Self::Override(Box::new(one.clone()))));
        let mut items: Vec<Self> = items.collect();
        for (list, attributes) in [(ListName::Allow, &rules.allow), (ListName::Block, &rules.block)] {
            for (attribute, values) in attributes {
                let entry = |value: &String| {
                    Self::ListEntry(ListEntry { list, attribute: attribute.clone(), value: value.clone() })
                };
                items.extend(values.iter().map(entry));
            }
        }
        items.into_iter().filter_map(|item| Some((item.name()?, item))).collect()
    }

    /// Builds a rule set from items.
    pub(crate) fn into_rules(items: impl IntoIterator<Item = Self>) -> Rules {
        let mut rules = Rules::default();
        items.into_iter().for_each(|item| item.add_to(&mut rules));
        rules
    }

    /// Adds the item to a rule set.
    pub(crate) fn add_to(self, rules: &mut Rules) {
        match self {
            Self::Unit(unit) => rules.units.push(unit.name),
            Self::Rule(rule) => rules.rules.push(*rule),
            Self::Override(item) => rules.overrides.push(*item),
            Self::ListEntry(ListEntry { list, attribute, value }) => {
                list.values_of(rules).entry(attribute).or_default().push(value);
            }
            Self::Unreadable(_) => {}
        }
    }
}

impl ListName {
    /// Returns the values of this list in a rule set.
    pub(crate) fn values_of(self, rules: &mut Rules) -> &mut BTreeMap<String, Vec<String>> {
        match self {
            Self::Allow => &mut rules.allow,
            Self::Block => &mut rules.block,
        }
    }
}

impl ItemName {
    pub(crate) fn of_rule(id: &str) -> Self {
        Self { kind: ItemKind::Rule, name: id.to_owned() }
    }

    pub(crate) fn of_override(item: &Override) -> Self {
        let key = item.key.iter().map(|(name, value)| format!(" {name}={value:?}"));
        Self { kind: ItemKind::Override, name: item.rule.clone() + &key.collect::<String>() }
    }
}

/// The unit that every rule counts by default.
const REQUESTS: &str = "requests";

/// Returns the form in which a rule is stored: without the default unit.
pub(crate) fn canonical_rule(rule: Rule) -> Rule {
    Rule { unit: rule.unit.filter(|unit| unit != REQUESTS), ..rule }
}

/// Returns the form in which a value of a list is stored, because one address or path can be written in many
/// ways.
pub(crate) fn canonical_value(attribute: &str, value: &str) -> String {
    let address = |text: &str| text.parse().ok().map(|address: IpAddr| address.to_canonical());
    let (text, prefix) = value.split_once('/').map_or((value, None), |(text, prefix)| (text, Some(prefix)));
    match (attribute, address(text)) {
        ("ip", Some(address)) => {
            let most = if address.is_ipv4() { "32" } else { "128" };
            match prefix.filter(|prefix| *prefix != most) {
                Some(prefix) => format!("{address}/{prefix}"),
                None => address.to_string(),
            }
        }
        _ if attribute == "endpoint" => normalize_path(value),
        _ => value.to_owned(),
    }
}

/// Returns the changes that turn `old` into `new`.
pub(crate) fn diff(old: &Rules, new: &Rules) -> Vec<StoredChange> {
    let (mut old, mut new) = (Item::all(old), Item::all(new));
    let names: std::collections::BTreeSet<ItemName> = old.keys().chain(new.keys()).cloned().collect();
    let changes = names.into_iter().map(|item| {
        let (before, after) = (old.remove(&item), new.remove(&item));
        StoredChange { kind: item.kind, name: item.name, before, after }
    });
    changes.filter(|change| change.before != change.after).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        Rules::from_yaml(text).unwrap()
    }

    #[test]
    fn only_differences_are_told_in_the_order_of_kinds_and_names() {
        let old = rules(
            "
            units: [tokens, usd]
            rules:
              - {id: b, scope: user, strategy: {fixed_window: {limit: 1, window: 1s}}}
              - {id: a, scope: user, strategy: {fixed_window: {limit: 1, window: 1s}}}
            overrides:
              - {rule: a, key: {user: ann}, verdict: block}
            block: {ip: [10.0.0.1, 10.0.0.2]}
            ",
        );
        let new = rules(
            "
            units: [words, usd]
            rules:
              - {id: a, scope: user, unit: usd, strategy: {fixed_window: {limit: 2, window: 1s}}}
              - {id: c, scope: user, strategy: {fixed_window: {limit: 1, window: 1s}}}
            overrides:
              - {rule: a, key: {user: ann}, verdict: block}
            allow: {ip: [10.0.0.2]}
            block: {ip: [10.0.0.1]}
            ",
        );
        let describe = |change: &StoredChange| {
            let sign = match (&change.before, &change.after) {
                (None, _) => '+',
                (_, None) => '-',
                _ => '~',
            };
            format!("{sign} {}", change.name)
        };
        let changes: Vec<String> = diff(&old, &new).iter().map(describe).collect();
        assert_eq!(
            changes,
            ["- tokens", "+ words", "~ a", "- b", "+ c", "+ allow ip 10.0.0.2", "- block ip 10.0.0.2"]
        );
        assert_eq!(diff(&old, &old), []);
        assert_eq!(diff(&old, &Item::into_rules(Item::all(&old).into_values())), []);
    }

    #[test]
    fn the_default_unit_is_no_difference() {
        let rule = |unit| {
            rules(&format!(
                "rules: [{{id: a, scope: user, {unit} strategy: {{fixed_window: {{limit: 1, window: 1s}}}}}}]"
            ))
        };
        assert_eq!(diff(&rule("unit: requests,"), &rule("")), []);
        let named = Item::into_rules(Item::all(&rule("unit: requests,")).into_values());
        assert_eq!(named, rule(""));
    }
}
