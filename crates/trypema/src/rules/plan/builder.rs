//! Finds the rules that apply to a request, and names their counters.

use std::sync::Arc;

use super::{Plan, Purpose};
use crate::check::MAX_CHECKS;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::rules::definition::{IfMissing, KeyVerdict};
use crate::rules::index::MatchedRules;
use crate::rules::request::IndexedSet;
use crate::rules::set::{CompiledRule, ListMatch, MatchedPath, OverrideAction, RuleSet, too_many_rules};
use crate::rules::verdict::{MissingInput, RuleOutcome, Verdict};

/// The expected length of a counter name. Reserving this much per name avoids most reallocations.
const EXPECTED_KEY_BYTES: usize = 32;

impl Plan {
    pub(super) fn of_sets(
        set: Arc<RuleSet>,
        sets: &[IndexedSet<'_>],
        purpose: Purpose,
    ) -> Result<Self, TrypemaError> {
        sets.iter().try_for_each(IndexedSet::refuse_ambiguous_path)?;
        let blocking = sets.iter().find_map(|indexed| set.block_match(indexed));
        let list_match = blocking.filter(|_| purpose != Purpose::End);
        let mut builder = PlanBuilder {
            set: &set,
            sets,
            purpose,
            list_match,
            outcomes: Vec::new(),
            keys: String::new(),
            unheld: Vec::new(),
            shadow_count: 0,
            of_set: None,
        };
        if builder.list_match.is_none() {
            match sets {
                [only] if only.has_one_path() => builder.add_set(only)?,
                _ => builder.add_sets()?,
            }
        }
        let PlanBuilder { list_match, outcomes, keys, unheld, shadow_count, .. } = builder;
        let verdict = Verdict { set, list_match, outcomes, keys, unheld };
        let is_blocked = verdict.is_denied_by_a_rule();
        Ok(Self { verdict, is_blocked, shadow_count })
    }
}

/// Builds the plan of a request.
struct PlanBuilder<'r> {
    set: &'r RuleSet,
    /// All attribute sets of the request.
    sets: &'r [IndexedSet<'r>],
    purpose: Purpose,
    /// See [`Verdict`], for this and the next three fields.
    list_match: Option<ListMatch>,
    outcomes: Vec<RuleOutcome>,
    keys: String,
    unheld: Vec<u32>,
    /// See [`Plan`].
    shadow_count: usize,
    /// The outcomes of one rule for one set; `None` if the request has a single set with a single path.
    of_set: Option<Vec<usize>>,
}

/// A rule that applies to one of several attribute sets, by one of its paths.
#[derive(Debug, Clone, Copy)]
struct SetMatch<'r> {
    matched: MatchedPath<'r>,
    /// The index of the set.
    set: usize,
}

impl SetMatch<'_> {
    fn rule(&self) -> u32 {
        self.matched.entry.rule
    }
}

impl<'r> PlanBuilder<'r> {
    /// Adds the rules that apply to the only set, which has one path or none, unless an allow list exempts it.
    fn add_set(&mut self, indexed: &IndexedSet<'_>) -> Result<(), TrypemaError> {
        self.list_match = self.allow_match(indexed);
        if self.list_match.is_some() {
            return Ok(());
        }
        let path = indexed.paths().next().flatten();
        let mut found = MatchedRules::default();
        self.set.find(indexed, path, &mut found)?;
        self.reserve(found.as_slice().len());
        for entry in found.as_slice() {
            if let Some(missing) = self.add(MatchedPath { entry: *entry, path }, indexed) {
                self.add_missing(entry.rule, missing)?;
            }
        }
        Ok(())
    }

    /// Adds the rules that apply to several sets, or by several paths, except to sets that an allow list exempts.
    /// If it exempts all of them, it decides the request.
    fn add_sets(&mut self) -> Result<(), TrypemaError> {
        let (mut found, mut candidates) = (Vec::new(), Vec::new());
        let (mut exempting, mut exempt_count) = (None, 0);
        let sets = self.sets;
        for (number, indexed) in sets.iter().enumerate() {
            if let Some(allowing) = self.allow_match(indexed) {
                exempting.get_or_insert(allowing);
                exempt_count += 1;
                continue;
            }
            for path in indexed.paths() {
                let mut matched = MatchedRules::default();
                self.set.find(indexed, path, &mut matched)?;
                for entry in matched {
                    let rule = self.set.at(entry.rule);
                    let is_candidate = rule.is_some_and(|rule| rule.rule.candidate_for.is_some());
                    let list = if is_candidate { &mut candidates } else { &mut found };
                    list.push(SetMatch { matched: MatchedPath { entry, path }, set: number });
                }
            }
        }
        if exempt_count == sets.len() {
            self.list_match = exempting;
            return Ok(());
        }
        self.add_matches(found, || Err(too_many_rules()))?;
        // Too many candidates must not fail a request.
        self.add_matches(candidates, || Ok(()))
    }

    /// Adds rules that apply to some of several sets, in the order of the rules. Calls `on_full` if there is no
    /// room for the counters of a rule, which is then left out.
    fn add_matches(
        &mut self,
        mut found: Vec<SetMatch<'r>>,
        on_full: impl Fn() -> Result<(), TrypemaError>,
    ) -> Result<(), TrypemaError> {
        // Stable: the paths of a set stay in their order.
        found.sort_by_key(|found| (found.rule(), found.set));
        let sets = self.sets;
        for of_rule in found.chunk_by(|one, other| one.rule() == other.rule()) {
            let before = (self.outcomes.len(), self.keys.len(), self.shadow_count);
            let mut is_missing_known = false;
            for of_set in of_rule.chunk_by(|one, other| one.set == other.set) {
                self.of_set = Some(Vec::new());
                for SetMatch { matched, set } in of_set {
                    if let Some(missing) = self.add(*matched, &sets[*set])
                        && !std::mem::replace(&mut is_missing_known, true)
                    {
                        self.add_missing(matched.entry.rule, missing)?;
                    }
                }
            }
            if self.outcomes.len() > MAX_CHECKS {
                self.outcomes.truncate(before.0);
                self.keys.truncate(before.1);
                self.shadow_count = before.2;
                on_full()?;
            }
        }
        Ok(())
    }

    /// Returns the entry of an allow list that exempts a set.
    fn allow_match(&self, indexed: &IndexedSet<'_>) -> Option<ListMatch> {
        self.set.allow_match(indexed).filter(|_| self.purpose != Purpose::End)
    }

    fn reserve(&mut self, rules: usize) {
        self.outcomes.reserve_exact(rules);
        self.keys.reserve(rules * EXPECTED_KEY_BYTES);
    }

    /// Adds the counter of a rule that applies to a set. If the request lacks a part, and the rule does not
    /// tolerate that, returns the part.
    fn add(&mut self, matched: MatchedPath<'_>, indexed: &IndexedSet<'_>) -> Option<MissingInput> {
        let entry = matched.entry;
        let rule = self.set.at(entry.rule)?;
        if self.purpose == Purpose::Check && rule.limit.is_held() {
            if !self.unheld.contains(&entry.rule) {
                self.unheld.push(entry.rule);
            }
            return None;
        }
        if rule.missing_attribute(indexed).is_some() {
            // An attribute that another set has is not missing; the rule may apply to that set.
            return rule.missing_attribute_of_all(self.sets).map(MissingInput::Attribute);
        }
        let start = self.keys.len();
        rule.write_key(&mut self.keys, matched, indexed);
        let key = &self.keys[start..];
        let action = rule.override_of(key);
        let is_ending = self.purpose == Purpose::End;
        let is_exempt = action == Some(&OverrideAction::Verdict(KeyVerdict::Allow)) && !is_ending;
        if (is_exempt && rule.is_exempted_exactly(indexed)) || !rule.is_in_share(key) {
            self.keys.truncate(start);
            return None;
        }
        let has_override = action.is_some();
        let is_blocked = action == Some(&OverrideAction::Verdict(KeyVerdict::Block)) && !is_ending;
        let unit = rule.rule.unit.as_deref();
        let Some(cost) = indexed.cost(unit).or((is_blocked || is_ending).then_some(0)) else {
            self.keys.truncate(start);
            let is_named = self.sets.iter().any(|indexed| indexed.cost(unit).is_some());
            let is_skipped = is_named || rule.rule.if_missing == IfMissing::Skip;
            return (!is_skipped).then_some(MissingInput::Cost);
        };
        if self.is_known(entry.rule, start, cost) {
            self.keys.truncate(start);
            return None;
        }
        self.shadow_count += usize::from(rule.rule.is_shadow());
        self.outcomes.push(RuleOutcome {
            rule: entry.rule,
            key_end: self.keys.len(),
            has_override,
            is_blocked,
            missing: None,
            cost,
            is_postpaid: rule.rule.postpaid,
            decision: is_blocked.then(Decision::refused),
        });
        None
    }

    /// Whether another set, or another path of the same set, uses the counter whose name is at `start` of the
    /// keys. The costs of all sets are added up; a set that uses a counter by several of its paths costs once.
    fn is_known(&mut self, rule: u32, start: usize, cost: u64) -> bool {
        if self.of_set.is_none() {
            return false;
        }
        let known = self.outcome_of(rule, start);
        let index = known.unwrap_or(self.outcomes.len());
        let Some(of_set) = self.of_set.as_mut().filter(|of_set| !of_set.contains(&index)) else {
            return true;
        };
        of_set.push(index);
        if let Some(outcome) = known.and_then(|known| self.outcomes.get_mut(known)) {
            outcome.cost = outcome.cost.saturating_add(cost);
        }
        known.is_some()
    }

    /// Returns the outcome that uses the counter whose name is at `start` of the keys. Outcomes of one rule
    /// follow each other.
    fn outcome_of(&self, rule: u32, start: usize) -> Option<usize> {
        let (keys, key) = self.keys.split_at(start);
        let of_rule = self.outcomes.iter().enumerate().rev();
        let mut of_rule = of_rule.take_while(|(_, outcome)| outcome.rule == rule);
        let is_same = |(index, outcome): &(usize, &RuleOutcome)| {
            let start = index.checked_sub(1).map_or(0, |before| self.outcomes[before].key_end);
            outcome.missing.is_none() && keys.get(start..outcome.key_end) == Some(key)
        };
        of_rule.find(is_same).map(|(index, _)| index)
    }

    /// Adds a rule to a request that lacks an attribute of its key or a cost in its unit. There is no counter,
    /// so its key is empty.
    fn add_missing(&mut self, number: u32, missing: MissingInput) -> Result<(), TrypemaError> {
        let Some(rule) = self.set.at(number).filter(|_| self.purpose != Purpose::End) else { return Ok(()) };
        if rule.fails_on_missing() && self.purpose != Purpose::Explain {
            return Err(rule.missing_error(self.set, missing));
        }
        // Without a key it is unknown whether the candidate's share includes the request.
        if rule.rule.share.is_some() {
            return Ok(());
        }
        self.shadow_count += usize::from(rule.rule.is_shadow());
        self.outcomes.push(RuleOutcome {
            rule: number,
            key_end: self.keys.len(),
            has_override: false,
            is_blocked: true,
            missing: Some(missing),
            cost: 0,
            is_postpaid: false,
            decision: Some(Decision::refused()),
        });
        Ok(())
    }
}

impl CompiledRule {
    /// Whether a missing attribute or cost is an error. Never for shadow rules.
    fn fails_on_missing(&self) -> bool {
        self.rule.if_missing == IfMissing::Error && !self.rule.is_shadow()
    }

    fn missing_error(&self, set: &RuleSet, missing: MissingInput) -> TrypemaError {
        let rule = self.rule.id.clone();
        match missing {
            MissingInput::Attribute(attribute) => {
                TrypemaError::MissingAttribute { rule, attribute: set.attribute_name(attribute).to_owned() }
            }
            MissingInput::Cost => TrypemaError::MissingCost { rule, unit: self.rule.unit_name().to_owned() },
        }
    }
}
