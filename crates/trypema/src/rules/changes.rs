//! The differences between two compiled rule sets, for logs.

use std::collections::BTreeSet;
use std::fmt;

use super::set::{CompiledRule, Lists, RuleSet};

/// The most ids of one kind that [`RuleSetChanges`] names when it is formatted. A line of a log stays short,
/// however large the change.
const MAX_NAMED: usize = 10;

/// The rules that differ between two rule sets, returned by [`RuleSet::changes_since`].
///
/// Formatted, it is one line, which names at most ten rules of each kind:
/// `added login, search; changed per-user; removed old; lists changed`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleSetChanges {
    /// The ids of the rules that only the new set has, by priority.
    pub added: Vec<String>,
    /// The ids of the rules that differ, or whose overrides differ, by priority.
    pub changed: Vec<String>,
    /// The ids of the rules that only the old set had, by priority.
    pub removed: Vec<String>,
    /// Whether an allow list or a block list differs.
    pub are_lists_changed: bool,
    /// Whether other units are declared.
    pub are_units_changed: bool,
}

impl RuleSetChanges {
    /// Whether both sets decide alike.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for RuleSetChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [("added", &self.added), ("changed", &self.changed), ("removed", &self.removed)];
        let mut parts: Vec<String> = kinds
            .into_iter()
            .filter(|(_, ids)| !ids.is_empty())
            .map(|(kind, ids)| named(kind, ids))
            .collect();
        if self.are_lists_changed {
            parts.push("lists changed".to_owned());
        }
        if self.are_units_changed {
            parts.push("units changed".to_owned());
        }
        f.write_str(&if parts.is_empty() { "nothing changed".to_owned() } else { parts.join("; ") })
    }
}

fn named(kind: &str, ids: &[String]) -> String {
    let first = ids.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match ids.len().saturating_sub(MAX_NAMED) {
        0 => format!("{kind} {first}"),
        more => format!("{kind} {first} and {more} more"),
    }
}

impl RuleSet {
    /// Returns the rules of this set that differ from those of an `old` one. Takes time in proportion to the
    /// size of both sets.
    ///
    /// ```
    /// use trypema::rules::RuleSet;
    ///
    /// let rules = |limit: u64| {
    ///     let text = format!("rules: [{{id: all, scope: global, strategy: {{fixed_window: {{limit: {limit}, window: 1s}}}}}}]");
    ///     RuleSet::from_yaml(&text, "rules.yaml")
    /// };
    /// let changes = rules(2)?.changes_since(&rules(1)?);
    /// assert_eq!(changes.to_string(), "changed all");
    /// # Ok::<(), trypema::rules::InvalidRules>(())
    /// ```
    pub fn changes_since(&self, old: &RuleSet) -> RuleSetChanges {
        let id = |compiled: &CompiledRule| compiled.rule.id.clone();
        let is_changed = |new: &&CompiledRule| {
            let old = old.compiled(&new.rule.id);
            old.is_some_and(|old| old.rule != new.rule || old.overrides_by_key != new.overrides_by_key)
        };
        let missing_in = |set: &RuleSet, rules: &[CompiledRule]| {
            rules.iter().filter(|compiled| set.compiled(&compiled.rule.id).is_none()).map(id).collect()
        };
        RuleSetChanges {
            added: missing_in(old, &self.rules),
            changed: self.rules.iter().filter(is_changed).map(id).collect(),
            removed: missing_in(self, &old.rules),
            are_lists_changed: !self.has_lists_of(old),
            are_units_changed: self.units().collect::<BTreeSet<_>>() != old.units().collect(),
        }
    }

    /// Whether both sets list the same values. Attributes are compared by name, because each set numbers
    /// them anew.
    fn has_lists_of(&self, other: &RuleSet) -> bool {
        let is_same = |of: fn(&Lists) -> &Vec<super::set::List>| {
            let (ours, theirs) = (of(&self.lists), of(&other.lists));
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|(ours, theirs)| {
                    let names = (self.attribute_name(ours.attribute), other.attribute_name(theirs.attribute));
                    names.0 == names.1 && ours.values == theirs.values
                })
        };
        is_same(|lists| &lists.allow) && is_same(|lists| &lists.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> RuleSet {
        RuleSet::from_yaml(text, "rules.yaml").unwrap()
    }

    const OLD: &str = "
rules:
  - {id: a, scope: user, strategy: {fixed_window: {limit: 1, window: 1s}}}
  - {id: b, scope: user, strategy: {fixed_window: {limit: 1, window: 1s}}}
  - {id: c, scope: user, strategy: {fixed_window: {limit: 1, window: 1s}}}
overrides:
  - {rule: c, key: {user: ann}, verdict: block}
allow: {ip: [10.0.0.0/8], tenant: [acme]}
block: {user: [eve]}
";

    #[test]
    fn rules_overrides_and_lists_are_compared() {
        let old = rules(OLD);
        let changes = |text: &str| rules(text).changes_since(&old).to_string();
        assert!(rules(OLD).changes_since(&old).is_empty());
        assert_eq!(changes(OLD), "nothing changed");
        assert_eq!(changes(&OLD.replace("id: a", "id: d")), "added d; removed a");
        assert_eq!(changes(&OLD.replacen("limit: 1", "limit: 2", 1)), "changed a");
        assert_eq!(changes(&OLD.replace("user: ann", "user: bob")), "changed c");
        for (from, to) in [("10.0.0.0/8", "10.0.0.0/9"), ("acme", "other"), ("user: [eve]", "tenant: [eve]")]
        {
            assert_eq!(changes(&OLD.replace(from, to)), "lists changed", "{to}");
        }
        assert_eq!(changes("rules: []\nblock: {user: [eve]}"), "removed a, b, c; lists changed");
        assert_eq!(changes(&format!("units: [tokens]{OLD}")), "units changed");
    }

    #[test]
    fn both_numbers_of_a_concurrency_limit_are_compared() {
        let of = |limit: u64, hold: &str| {
            let strategy = format!("{{concurrency: {{limit: {limit}, hold: {hold}}}}}");
            rules(&format!(
                "rules: [{{id: a, scope: user, strategy: {strategy}}}]\n\
                 overrides: [{{rule: a, key: {{user: ann}}, strategy: {strategy}}}]"
            ))
        };
        assert!(of(20, "60s").changes_since(&of(20, "1m")).is_empty());
        assert_eq!(of(20, "60s").changes_since(&of(21, "60s")).to_string(), "changed a");
        assert_eq!(of(20, "60s").changes_since(&of(20, "61s")).to_string(), "changed a");
    }

    /// Another order of attributes gives them other numbers, and changes nothing.
    #[test]
    fn lists_are_compared_by_the_names_of_attributes() {
        let other = OLD.replace(
            "rules:\n",
            "rules:\n  - {id: 0, scope: tenant, strategy: {fixed_window: {limit: 1, window: 1s}}}\n",
        );
        assert_eq!(rules(&other).changes_since(&rules(OLD)).to_string(), "added 0");
    }

    #[test]
    fn a_large_change_is_a_short_line() {
        let many: String = (0..1_000)
            .map(|id| format!("  - {{id: rule-{id:04}, scope: user, strategy: {{fixed_window: {{limit: 1, window: 1s}}}}}}\n"))
            .collect();
        let changes = rules(&format!("rules:\n{many}")).changes_since(&RuleSet::default());
        let told = changes.to_string();
        assert!(told.starts_with("added rule-0000, rule-0001, ") && told.ends_with("rule-0009 and 990 more"));
        assert!(told.len() < 200, "{told}");
    }
}
