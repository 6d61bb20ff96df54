//! The plan of one request: the checks that its rules require of the store.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::definition::{IfMissing, KeyVerdict, OnStoreFailure};
use super::index::IndexEntry;
use super::request::{IndexedSet, Request};
use super::set::{CompiledRule, ListMatch, OverrideAction, RuleSet, too_many_rules};
use super::verdict::{MissingInput, RuleOutcome, Verdict};
use crate::check::{Check, MAX_CHECKS};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::strategy::{ConcurrencyLimit, Limit};

/// The rules that apply to a request, with their counters. The verdict has no decisions yet, except for rules
/// that need no counter.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) verdict: Verdict,
    is_blocked: bool,
    /// The number of shadow rules: log-only rules and candidates.
    shadow_count: usize,
}

/// The expected length of a counter name. Reserving this much per name avoids most reallocations.
const EXPECTED_KEY_BYTES: usize = 32;

/// Checks of a plan, and for each one the index of its outcome.
#[derive(Debug, Clone, Default)]
pub(super) struct Checks<'p> {
    pub(super) checks: Vec<Check<'p>>,
    pub(super) outcomes: Vec<usize>,
}

/// The purpose of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A check, which cannot hold anything: concurrency rules are skipped.
    Check,
    /// A reservation.
    Reserve,
    /// An explanation of all rules. A missing attribute is a denial and not an error, so that the explanation
    /// can show the reason.
    Explain,
}

impl Plan {
    pub(super) fn new(set: Arc<RuleSet>, request: &Request<'_>) -> Result<Self, TrypemaError> {
        Self::build(set, request, Purpose::Check)
    }

    /// The same as [`Plan::new`], for a reservation: concurrency rules apply as well.
    pub(super) fn for_reservation(set: Arc<RuleSet>, request: &Request<'_>) -> Result<Self, TrypemaError> {
        Self::build(set, request, Purpose::Reserve)
    }

    /// The same as [`Plan::new`], for an explanation: a missing attribute is a denial and not an error.
    pub(super) fn for_explanation(set: Arc<RuleSet>, request: &Request<'_>) -> Result<Self, TrypemaError> {
        Self::build(set, request, Purpose::Explain)
    }

    fn build(set: Arc<RuleSet>, request: &Request<'_>, purpose: Purpose) -> Result<Self, TrypemaError> {
        set.validate(request)?;
        match request.sets() {
            [only] => {
                let indexed = set.index_set(*only);
                Self::of_sets(set, slice::from_ref(&indexed), purpose)
            }
            sets => {
                let indexed: Vec<IndexedSet<'_>> = sets.iter().map(|one| set.index_set(*one)).collect();
                Self::of_sets(set, &indexed, purpose)
            }
        }
    }

    fn of_sets(set: Arc<RuleSet>, sets: &[IndexedSet<'_>], purpose: Purpose) -> Result<Self, TrypemaError> {
        let list_match = sets.iter().find_map(|indexed| set.block_match(indexed));
        let mut builder = PlanBuilder {
            set: &set,
            sets,
            purpose,
            list_match,
            outcomes: Vec::new(),
            keys: String::new(),
            unheld: Vec::new(),
            shadow_count: 0,
        };
        if builder.list_match.is_none() {
            match sets {
                [only] => builder.add_set(only)?,
                _ => builder.add_sets()?,
            }
        }
        let PlanBuilder { list_match, outcomes, keys, unheld, shadow_count, .. } = builder;
        let verdict = Verdict { set, list_match, outcomes, keys, unheld };
        let is_blocked = verdict.is_denied_by_a_rule();
        Ok(Self { verdict, is_blocked, shadow_count })
    }

    /// Returns a plan for the counter of this name; `None` if the name belongs to no rule.
    pub(super) fn of_key(set: Arc<RuleSet>, key: &str, cost: u64) -> Option<Self> {
        let rule = *set.ids.get(key.split('|').next()?)?;
        let compiled = set.at(rule)?;
        let canonical = set.canonical_name(key);
        let key = &*canonical;
        if !compiled.has_counter(key) {
            return None;
        }
        let action = compiled.override_of(key).cloned();
        let is_blocked = action == Some(OverrideAction::Verdict(KeyVerdict::Block));
        let outcome = RuleOutcome {
            rule,
            key_end: key.len(),
            has_override: action.is_some(),
            is_blocked,
            missing: None,
            cost,
            // The caller asks about this cost, not about a request that pays later.
            is_postpaid: false,
            decision: is_blocked.then(Decision::refused),
        };
        let verdict = Verdict {
            set,
            list_match: None,
            outcomes: vec![outcome],
            keys: key.to_owned(),
            unheld: Vec::new(),
        };
        Some(Self { verdict, is_blocked, shadow_count: 0 })
    }

    /// Returns the checks of the enforced rules, which are taken all or nothing. Empty if one of these rules
    /// denies the request regardless of its counter.
    pub(super) fn enforced_checks(&self) -> Checks<'_> {
        if self.is_blocked {
            return Checks::default();
        }
        let count = self.verdict.outcomes.len() - self.shadow_count;
        self.checks(count, |rule| !rule.rule.is_shadow())
    }

    /// Returns the shortest hold of the concurrency rules of the request.
    pub(super) fn shortest_hold(&self) -> Option<Duration> {
        self.slots().map(|(_, limit)| limit.hold()).min()
    }

    /// Returns the name of the counter of the first concurrency rule.
    pub(super) fn first_slot_key(&self) -> Option<String> {
        self.slots().next().map(|(key, _)| key.to_owned())
    }

    /// Returns the counters of concurrency rules, with their limits.
    fn slots(&self) -> impl Iterator<Item = (&str, &ConcurrencyLimit)> {
        self.verdict.outcomes.iter().enumerate().filter_map(|(index, outcome)| {
            let (rule, key) = (self.verdict.set.at(outcome.rule)?, self.verdict.key(index));
            match rule.limit_of(key) {
                Limit::Concurrency(limit) => Some((key, limit)),
                _ => None,
            }
        })
    }

    /// Replaces the limits of `checks` with those that `set` has for the same counters now.
    #[cfg(feature = "tower")]
    pub(super) fn with_limits_of<'p>(&'p self, set: &'p RuleSet, mut checks: Checks<'p>) -> Checks<'p> {
        for (check, outcome) in checks.checks.iter_mut().zip(&checks.outcomes) {
            let old =
                self.verdict.outcomes.get(*outcome).and_then(|outcome| self.verdict.set.at(outcome.rule));
            let new = old.and_then(|rule| set.compiled(&rule.rule.id)).map(|rule| rule.limit_of(check.key));
            if let Some(limit) = new.filter(|limit| limit.strategy() == check.limit.strategy()) {
                check.limit = limit;
            }
        }
        checks
    }

    /// Returns the checks of log-only rules, and of candidates for log-only rules: each is taken on its own.
    pub(super) fn log_only_checks(&self) -> Checks<'_> {
        self.checks(self.shadow_count, |rule| {
            rule.rule.is_shadow() && self.verdict.set.live_rule_in_force(rule).is_none()
        })
    }

    /// Returns the checks of candidates for rules that may deny a request. Leaves out candidates with several
    /// counters: they would have to be spent all or nothing, and only the enforced rules are.
    pub(super) fn candidate_checks(&self) -> Checks<'_> {
        let outcomes = &self.verdict.outcomes;
        let mut candidates =
            self.checks(self.shadow_count, |rule| self.verdict.set.live_rule_in_force(rule).is_some());
        let is_alone = |index: usize| {
            let rule_of = |index: usize| outcomes.get(index).map(|outcome| outcome.rule);
            let neighbours = [index.checked_sub(1), Some(index + 1)].into_iter().flatten();
            neighbours.map(rule_of).all(|other| other != rule_of(index))
        };
        let kept: Vec<bool> = candidates.outcomes.iter().map(|index| is_alone(*index)).collect();
        let mut is_kept = kept.iter();
        candidates.checks.retain(|_| is_kept.next().is_some_and(|is_kept| *is_kept));
        candidates.outcomes.retain(|index| is_alone(*index));
        candidates
    }

    pub(super) fn has_candidates(&self) -> bool {
        let is_candidate = |rule: &CompiledRule| self.verdict.set.live_rule_in_force(rule).is_some();
        self.shadow_count > 0
            && self
                .verdict
                .outcomes
                .iter()
                .any(|outcome| self.verdict.set.at(outcome.rule).is_some_and(is_candidate))
    }

    /// Whether the rule of an outcome is a shadow rule.
    pub(super) fn is_shadow(&self, outcome: usize) -> bool {
        let rule = self.verdict.outcomes.get(outcome).and_then(|outcome| self.verdict.set.at(outcome.rule));
        rule.is_some_and(|rule| rule.rule.is_shadow())
    }

    /// Returns the checks for a verdict without spending. If an enforced rule denies the request regardless
    /// of its counter, only those of shadow rules.
    pub(super) fn checks_to_peek(&self) -> Checks<'_> {
        if self.is_blocked {
            return self.checks(self.shadow_count, |rule| rule.rule.is_shadow());
        }
        self.all_checks()
    }

    /// Returns a check for every rule that applies.
    pub(super) fn all_checks(&self) -> Checks<'_> {
        self.checks(self.verdict.outcomes.len(), |_| true)
    }

    /// Stores decisions in their outcomes.
    pub(super) fn decide(&mut self, outcomes: &[usize], decisions: &[Option<Decision>]) {
        for (index, decision) in outcomes.iter().zip(decisions) {
            if let (Some(outcome), Some(decision)) = (self.verdict.outcomes.get_mut(*index), decision) {
                outcome.decision = Some(*decision);
            }
        }
    }

    /// Returns the failure policy of the rule of an outcome, if the rule has its own.
    pub(super) fn on_store_failure(&self, outcome: usize) -> Option<OnStoreFailure> {
        let rule = self.verdict.outcomes.get(outcome)?.rule;
        self.verdict.set.at(rule)?.rule.on_store_failure
    }

    fn checks(&self, count: usize, is_wanted: impl Fn(&CompiledRule) -> bool) -> Checks<'_> {
        if count == 0 {
            return Checks::default();
        }
        let mut found = Checks { checks: Vec::with_capacity(count), outcomes: Vec::with_capacity(count) };
        for (index, outcome) in self.verdict.outcomes.iter().enumerate() {
            let rule = self.verdict.set.at(outcome.rule).filter(|rule| is_wanted(rule));
            let Some(rule) = rule.filter(|_| !outcome.is_blocked) else { continue };
            let key = self.verdict.key(index);
            let limit = if outcome.has_override { rule.limit_of(key) } else { &rule.limit };
            let check = Check { is_postpaid: outcome.is_postpaid, ..Check::new(key, limit, outcome.cost) };
            found.checks.push(check);
            found.outcomes.push(index);
        }
        found
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
}

/// A rule that applies to one of several attribute sets.
#[derive(Debug, Clone, Copy)]
struct SetMatch {
    entry: IndexEntry,
    /// The index of the set.
    set: usize,
}

impl PlanBuilder<'_> {
    /// Adds the rules that apply to the only set, unless an allow list exempts it.
    fn add_set(&mut self, indexed: &IndexedSet<'_>) -> Result<(), TrypemaError> {
        self.list_match = self.set.allow_match(indexed);
        if self.list_match.is_some() {
            return Ok(());
        }
        let found = self.set.find(indexed)?;
        self.reserve(found.as_slice().len());
        for entry in found.as_slice() {
            if let Some(missing) = self.add(*entry, indexed) {
                self.add_missing(entry.rule, missing)?;
            }
        }
        Ok(())
    }

    /// Adds the rules that apply to several sets, except to those that an allow list exempts. If it exempts
    /// all of them, it decides the request.
    fn add_sets(&mut self) -> Result<(), TrypemaError> {
        let (mut found, mut candidates) = (Vec::new(), Vec::new());
        let (mut exempting, mut exempt_count) = (None, 0);
        for (number, indexed) in self.sets.iter().enumerate() {
            if let Some(allowing) = self.set.allow_match(indexed) {
                exempting.get_or_insert(allowing);
                exempt_count += 1;
                continue;
            }
            for entry in self.set.find(indexed)? {
                let rule = self.set.at(entry.rule);
                let is_candidate = rule.is_some_and(|rule| rule.rule.candidate_for.is_some());
                let list = if is_candidate { &mut candidates } else { &mut found };
                list.push(SetMatch { entry, set: number });
            }
        }
        if exempt_count == self.sets.len() {
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
        mut found: Vec<SetMatch>,
        on_full: impl Fn() -> Result<(), TrypemaError>,
    ) -> Result<(), TrypemaError> {
        found.sort_unstable_by_key(|matched| (matched.entry.rule, matched.set));
        let sets = self.sets;
        for of_rule in found.chunk_by(|one, other| one.entry.rule == other.entry.rule) {
            let before = (self.outcomes.len(), self.keys.len(), self.shadow_count);
            let mut is_missing_known = false;
            for matched in of_rule {
                if let Some(missing) = self.add(matched.entry, &sets[matched.set])
                    && !std::mem::replace(&mut is_missing_known, true)
                {
                    self.add_missing(matched.entry.rule, missing)?;
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

    fn reserve(&mut self, rules: usize) {
        self.outcomes.reserve_exact(rules);
        self.keys.reserve(rules * EXPECTED_KEY_BYTES);
    }

    /// Adds the counter of a rule that applies to a set. If the request lacks a part, and the rule does not
    /// tolerate that, returns the part.
    fn add(&mut self, entry: IndexEntry, indexed: &IndexedSet<'_>) -> Option<MissingInput> {
        let rule = self.set.at(entry.rule)?;
        if self.purpose == Purpose::Check && matches!(rule.limit, Limit::Concurrency(_)) {
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
        rule.write_key(&mut self.keys, entry, indexed);
        let key = &self.keys[start..];
        let action = rule.override_of(key);
        let is_exempt = action == Some(&OverrideAction::Verdict(KeyVerdict::Allow));
        if is_exempt || !rule.is_in_share(key) {
            self.keys.truncate(start);
            return None;
        }
        let has_override = action.is_some();
        let is_blocked = action == Some(&OverrideAction::Verdict(KeyVerdict::Block));
        let unit = rule.rule.unit.as_deref();
        let Some(cost) = indexed.cost(unit).or(is_blocked.then_some(0)) else {
            self.keys.truncate(start);
            let is_named = self.sets.iter().any(|indexed| indexed.cost(unit).is_some());
            let is_skipped = is_named || rule.rule.if_missing == IfMissing::Skip;
            return (!is_skipped).then_some(MissingInput::Cost);
        };
        if self.sets.len() > 1
            && let Some(known) = self.outcome_of(entry.rule, start)
        {
            self.keys.truncate(start);
            let outcome = &mut self.outcomes[known];
            outcome.cost = outcome.cost.saturating_add(cost);
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
        let Some(rule) = self.set.at(number) else { return Ok(()) };
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

impl Checks<'_> {
    /// Returns the same checks at another cost.
    pub(super) fn costing(mut self, cost: u64) -> Self {
        self.checks.iter_mut().for_each(|check| check.cost = cost);
        self
    }

    /// Returns the same checks, with a cost of 0 for abuse rules: they are only checked for a block, because
    /// an attempt counts only once it has failed.
    pub(super) fn for_peek(mut self) -> Self {
        for check in self.checks.iter_mut().filter(|check| matches!(check.limit, Limit::Abuse(_))) {
            check.cost = 0;
        }
        self
    }
}
