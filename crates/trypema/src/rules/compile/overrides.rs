//! Compiles overrides: a limit or a verdict for a single key of a rule.

use std::collections::BTreeMap;

use super::Compiler;
use crate::rules::definition::Override;
use crate::rules::endpoint::Path;
use crate::rules::problem::Field;
use crate::rules::set::{Compiled, ENDPOINT, Special};

impl Compiler {
    pub(super) fn overrides(&mut self, rules: &mut [Compiled], written: &[Override]) {
        let all = Field::of("overrides");
        let places: BTreeMap<String, usize> =
            rules.iter().enumerate().map(|(place, rule)| (rule.rule.id.clone(), place)).collect();
        let mut inherited = Inherited::of(rules);
        for (index, special) in written.iter().enumerate() {
            let field = all.at(index);
            let Some(rule) = places.get(&special.rule).and_then(|place| rules.get_mut(*place)) else {
                let given: String = special.rule.chars().take(super::MAX_ID_BYTES).collect();
                self.refuse(&field.then("rule"), format!("there is no valid rule {given:?}"));
                continue;
            };
            let known = self.problems.len();
            if let Some(special) = self.add(rule, special, &field) {
                inherited.note(rule, index, special);
            }
            self.name_rule(known, &special.rule);
        }
        // Runs last: only now are all of the candidates' own overrides known, and those take precedence.
        inherited.hand_on(rules, written);
    }

    /// Adds an override to its rule and returns what the override does.
    fn add(&mut self, rule: &mut Compiled, written: &Override, field: &Field) -> Option<Special> {
        let special = self.special(rule, written, field);
        let key = self.key(rule, written, &field.then("key"));
        let (special, key) = (special?, key?);
        if rule.specials.insert(key.into(), special.clone()).is_some() {
            self.refuse(&field.then("key"), "this key of the rule has an override already");
        }
        Some(special)
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

    /// Returns the name of the counter that the override applies to.
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
        if let Some(path) = written.key.get(ENDPOINT).filter(|path| !Path::new(path).is_text()) {
            let given: String = path.chars().take(super::MAX_ID_BYTES).collect();
            self.refuse(&field.then(ENDPOINT), format!("path {given:?} does not decode to text"));
            return None;
        }
        Some(rule.counter_of(&written.key))
    }
}

/// Overrides of live rules that their candidates inherit. Without them, a key that the live rule blocks or
/// limits separately would show up as a difference between the live rule and its candidate.
struct Inherited {
    /// The indexes of the candidates, by the id of their live rule.
    heirs: BTreeMap<String, Vec<usize>>,
    /// Each override of a rule that has candidates: its index in the written list, and what it does.
    noted: Vec<(usize, Special)>,
}

impl Inherited {
    fn of(rules: &[Compiled]) -> Self {
        let mut heirs: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (place, rule) in rules.iter().enumerate() {
            if let Some(live) = &rule.rule.candidate_for {
                heirs.entry(live.clone()).or_default().push(place);
            }
        }
        Self { heirs, noted: Vec::new() }
    }

    fn note(&mut self, live: &Compiled, index: usize, special: Special) {
        if self.heirs.contains_key(&live.rule.id) {
            self.noted.push((index, special));
        }
    }

    /// Copies the overrides to the candidates that they fit, unless the candidate has its own override for
    /// the key.
    fn hand_on(self, rules: &mut [Compiled], written: &[Override]) {
        for (index, special) in self.noted {
            let Some(written) = written.get(index) else { continue };
            for heir in self.heirs.get(&written.rule).into_iter().flatten() {
                if let Some(candidate) =
                    rules.get_mut(*heir).filter(|candidate| is_fit(candidate, written, &special))
                {
                    let key = candidate.counter_of(&written.key).into();
                    candidate.specials.entry(key).or_insert_with(|| special.clone());
                }
            }
        }
    }
}

/// Whether an override of a live rule also works for a candidate: the placeholders and the strategy are the
/// same.
fn is_fit(candidate: &Compiled, written: &Override, special: &Special) -> bool {
    let names = candidate.placeholders.iter().map(|placeholder| &*placeholder.name);
    let is_same_strategy = match special {
        Special::Limit(limit) => limit.strategy() == candidate.limit.strategy(),
        Special::Verdict(_) => true,
    };
    is_same_strategy && names.eq(written.key.keys().map(String::as_str))
}
