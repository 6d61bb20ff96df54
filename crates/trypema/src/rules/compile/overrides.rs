//! Compiles overrides: a limit or a verdict for a single key of a rule.

use std::collections::{BTreeMap, BTreeSet};

use super::Compiler;
use crate::rules::definition::{Override, Rules};
use crate::rules::endpoint::is_text;
use crate::rules::problem::FieldPath;
use crate::rules::set::{CompiledRule, ENDPOINT, OverrideAction};

impl Compiler<'_> {
    pub(super) fn overrides(&mut self, rules: &mut [CompiledRule], written: &Rules) {
        let all = FieldPath::of("overrides");
        let are_ids_known = self.are_ids_known(&written.rules, &FieldPath::of("rules"));
        let ids: BTreeSet<&str> = written.rules.iter().map(|rule| rule.id.as_str()).collect();
        let written = &written.overrides;
        let positions: BTreeMap<String, usize> =
            rules.iter().enumerate().map(|(place, rule)| (rule.rule.id.clone(), place)).collect();
        let mut inherited = InheritedOverrides::of(rules);
        for (index, entry) in written.iter().enumerate() {
            let (field, known) = (all.at(index), self.problems.listed().len());
            let Some(rule) = positions.get(&entry.rule).and_then(|position| rules.get_mut(*position)) else {
                if are_ids_known && !ids.contains(entry.rule.as_str()) {
                    let given: String = entry.rule.chars().take(super::MAX_ID_BYTES).collect();
                    self.refuse(&field.then("rule"), format!("there is no rule {given:?}"));
                } else {
                    // The rule is invalid, and its problems are known. Those of the override are added.
                    self.check_alone(entry, &field);
                    self.name_rule(known, &entry.rule);
                }
                continue;
            };
            if let Some(action) = self.add(rule, entry, &field) {
                inherited.note(rule, index, action);
            }
            self.name_rule(known, &entry.rule);
        }
        // Runs last: only now are all of the candidates' own overrides known, and those take precedence.
        inherited.copy_to_candidates(rules, written);
    }

    /// Adds an override to its rule, and returns its action.
    fn add(
        &mut self,
        rule: &mut CompiledRule,
        written: &Override,
        field: &FieldPath,
    ) -> Option<OverrideAction> {
        let action = self.override_of(rule, written, field);
        let has_key = self.has_key(rule, written, &field.then("key"));
        let action = action.filter(|_| has_key)?;
        if !rule.add_override(&written.key, action.clone()) {
            self.refuse(&field.then("key"), "duplicate override: this key already has one");
        }
        Some(action)
    }

    /// Checks an override without its rule.
    fn check_alone(&mut self, written: &Override, field: &FieldPath) {
        self.refuse_both_or_none(written, field);
        if let Some(numbers) = &written.strategy {
            numbers.compile(self, &field.then("strategy"));
        }
    }

    fn refuse_both_or_none(&mut self, written: &Override, field: &FieldPath) {
        match (&written.strategy, written.verdict) {
            (None, None) => {
                self.refuse(field, "an override needs a `strategy` with its numbers or a `verdict`");
            }
            (Some(_), Some(_)) => {
                self.refuse(field, "an override has a `strategy` or a `verdict`, not both");
            }
            (Some(_), None) | (None, Some(_)) => {}
        }
    }

    fn override_of(
        &mut self,
        rule: &CompiledRule,
        written: &Override,
        field: &FieldPath,
    ) -> Option<OverrideAction> {
        self.refuse_both_or_none(written, field);
        let Some(numbers) = &written.strategy else { return written.verdict.map(OverrideAction::Verdict) };
        let limit = numbers.compile(self, &field.then("strategy"))?;
        if limit.strategy() != rule.limit.strategy() {
            let (own, other) = (rule.limit.strategy(), limit.strategy());
            self.refuse(&field.then("strategy"), format!("the rule's strategy is {own}, not {other}"));
            return None;
        }
        Some(OverrideAction::Limit(limit))
    }

    /// Whether the override names a counter of its rule.
    fn has_key(&mut self, rule: &CompiledRule, written: &Override, field: &FieldPath) -> bool {
        let is_placeholder =
            |name: &String| rule.placeholders.iter().any(|placeholder| *placeholder.name == **name);
        let known = self.problems.count();
        for name in written.key.keys().filter(|name| !is_placeholder(name)) {
            self.refuse(&field.then(name), format!("the rule has no placeholder {name:?}"));
        }
        for placeholder in &rule.placeholders {
            if !written.key.contains_key(&*placeholder.name) {
                let name = &placeholder.name;
                self.refuse(field, format!("a value for the rule's placeholder {name:?} is missing"));
            }
        }
        if let Some(path) = written.key.get(ENDPOINT).filter(|path| !is_text(path)) {
            let given: String = path.chars().take(super::MAX_ID_BYTES).collect();
            self.refuse(&field.then(ENDPOINT), format!("path {given:?} does not decode to text"));
        }
        self.problems.count() == known && !self.has_replaced(field) && !self.is_replaced(field)
    }
}

/// Overrides of live rules that their candidates inherit. Without them, a key that the live rule blocks or
/// limits separately would show up as a difference between the live rule and its candidate.
struct InheritedOverrides {
    /// The indexes of the candidates, by the id of their live rule.
    candidates: BTreeMap<String, Vec<usize>>,
    /// Each override of a rule that has candidates: its index in the written list, and its action.
    overrides: Vec<(usize, OverrideAction)>,
}

impl InheritedOverrides {
    fn of(rules: &[CompiledRule]) -> Self {
        let mut candidates: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (place, rule) in rules.iter().enumerate() {
            if let Some(live) = &rule.rule.candidate_for {
                candidates.entry(live.clone()).or_default().push(place);
            }
        }
        Self { candidates, overrides: Vec::new() }
    }

    fn note(&mut self, live: &CompiledRule, index: usize, action: OverrideAction) {
        if self.candidates.contains_key(&live.rule.id) {
            self.overrides.push((index, action));
        }
    }

    /// Copies the overrides to the candidates that they fit, unless the candidate has its own override for
    /// the key.
    fn copy_to_candidates(self, rules: &mut [CompiledRule], written: &[Override]) {
        for (index, action) in self.overrides {
            let Some(written) = written.get(index) else { continue };
            for candidate_index in self.candidates.get(&written.rule).into_iter().flatten() {
                if let Some(candidate) =
                    rules.get_mut(*candidate_index).filter(|candidate| is_fit(candidate, written, &action))
                {
                    candidate.add_override(&written.key, action.clone());
                }
            }
        }
    }
}

/// Whether an override of a live rule also works for a candidate: the placeholders and the strategy are the
/// same.
fn is_fit(candidate: &CompiledRule, written: &Override, action: &OverrideAction) -> bool {
    let names = candidate.placeholders.iter().map(|placeholder| &*placeholder.name);
    let is_same_strategy = match action {
        OverrideAction::Limit(limit) => limit.strategy() == candidate.limit.strategy(),
        OverrideAction::Verdict(_) => true,
    };
    is_same_strategy && names.eq(written.key.keys().map(String::as_str))
}
