//! Special limits and verdicts for single keys.

use std::collections::BTreeMap;

use super::Compiler;
use crate::rules::counter::{self, Value};
use crate::rules::definition::Override;
use crate::rules::problem::Field;
use crate::rules::set::{Compiled, Special};

impl Compiler {
    pub(super) fn overrides(&mut self, rules: &mut [Compiled], written: &[Override]) {
        let all = Field::of("overrides");
        let places: BTreeMap<String, usize> =
            rules.iter().enumerate().map(|(place, rule)| (rule.rule.id.clone(), place)).collect();
        for (index, special) in written.iter().enumerate() {
            let field = all.at(index);
            let Some(rule) = places.get(&special.rule).and_then(|place| rules.get_mut(*place)) else {
                let given: String = special.rule.chars().take(super::MAX_ID_BYTES).collect();
                self.refuse(&field.then("rule"), format!("there is no valid rule {given:?}"));
                continue;
            };
            let known = self.problems.len();
            self.add(rule, special, &field);
            self.name_rule(known, &special.rule);
        }
    }

    fn add(&mut self, rule: &mut Compiled, written: &Override, field: &Field) {
        let special = self.special(rule, written, field);
        let key = self.key(rule, written, &field.then("key"));
        let (Some(special), Some(key)) = (special, key) else { return };
        if rule.specials.insert(key.into(), special).is_some() {
            self.refuse(&field.then("key"), "this key of the rule has an override already");
        }
    }

    fn special(&mut self, rule: &Compiled, written: &Override, field: &Field) -> Option<Special> {
        match (&written.strategy, written.verdict) {
            (Some(numbers), None) => {
                let limit = self.limit(numbers, &field.then("strategy"))?;
                if limit.strategy() != rule.limit.strategy() {
                    let (own, other) = (rule.limit.strategy(), limit.strategy());
                    self.refuse(
                        &field.then("strategy"),
                        format!("the rule's strategy is {own}, not {other}"),
                    );
                    return None;
                }
                Some(Special::Limit(limit))
            }
            (None, Some(verdict)) => Some(Special::Verdict(verdict)),
            (None, None) => {
                self.refuse(field, "an override needs a `strategy` with its numbers or a `verdict`");
                None
            }
            (Some(_), Some(_)) => {
                self.refuse(field, "an override has a `strategy` or a `verdict`, not both");
                None
            }
        }
    }

    /// The name of the counter that the override is for.
    fn key(&mut self, rule: &Compiled, written: &Override, field: &Field) -> Option<String> {
        let is_placeholder =
            |name: &String| rule.placeholders.iter().any(|placeholder| *placeholder.name == **name);
        if let Some(name) = written.key.keys().find(|name| !is_placeholder(name)) {
            self.refuse(&field.then(name), format!("{name:?} is no placeholder of the rule"));
            return None;
        }
        let missing =
            rule.placeholders.iter().find(|placeholder| !written.key.contains_key(&*placeholder.name));
        if let Some(placeholder) = missing {
            self.refuse(
                field,
                format!("a value for the rule's placeholder {:?} is missing", placeholder.name),
            );
            return None;
        }
        let mut text = String::new();
        let values = written.key.iter().map(|(name, value)| (name.as_str(), Value::of(name, value)));
        counter::write(&mut text, &rule.rule.id, values);
        Some(text)
    }
}
