//! Verdicts: the combined result of all rules that apply to a request.

mod comparison;

#[cfg(feature = "http")]
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

pub use comparison::Comparison;
pub(super) use comparison::DenyingRules;

use super::definition::{Action, KeyVerdict, Rule};
use super::set::{ListMatch, RuleSet};
use crate::decision::{BlockScope, Decision};
use crate::strategy::Limit;

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The request may proceed. Either all rules allowed it and its cost was spent, or an allow list exempts
    /// it.
    Allowed,
    /// The client should wait for [`Verdict::retry_after`] and try again: only throttling rules denied the
    /// request, with short waits. Nothing was spent or reserved.
    Throttled,
    /// The request must not proceed. Nothing was spent.
    Denied,
}

/// The result of one request, decided by one version of the rules.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub(super) set: Arc<RuleSet>,
    pub(super) list_match: Option<ListMatch>,
    /// The rules that apply, by priority.
    pub(super) outcomes: Vec<RuleOutcome>,
    /// The counter names of all outcomes, concatenated.
    pub(super) keys: String,
    /// The concurrency rules that a check skipped, because it cannot hold anything.
    pub(super) unheld: Vec<u32>,
}

/// The part of one rule in a verdict.
#[derive(Debug, Clone)]
pub(super) struct RuleOutcome {
    pub(super) rule: u32,
    /// The end of the counter name in [`Verdict::keys`]. The name starts where the previous outcome's name
    /// ends.
    pub(super) key_end: usize,
    /// Whether the key has an override.
    pub(super) has_override: bool,
    /// Whether the rule denies the request regardless of its counter, which is then not checked.
    pub(super) is_blocked: bool,
    /// The part that the request lacks, if this is the reason for the denial.
    pub(super) missing: Option<MissingInput>,
    /// The units that the request asks of the counter.
    pub(super) cost: u64,
    /// Whether one free unit is enough.
    pub(super) is_postpaid: bool,
    /// The decision of the rule; `None` until its counter was checked.
    pub(super) decision: Option<Decision>,
}

/// A part that a request lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MissingInput {
    /// An attribute of the rule's key, by its number.
    Attribute(u16),
    /// A cost in the rule's unit.
    Cost,
}

/// The decision of one rule.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RuleDecision<'v> {
    /// The rule.
    pub rule: &'v Rule,
    /// The name of the counter; empty if the request lacks an attribute or a cost.
    pub key: &'v str,
    /// The units that the request asks of this counter. If several attribute sets use it, this is the sum.
    pub cost: u64,
    /// The limit that applies to this counter.
    pub limit: &'v Limit,
    /// The decision of this rule alone.
    pub decision: &'v Decision,
    /// The attribute of the rule's key that the request lacks, if the rule denies the request for this reason
    /// ([`IfMissing`](super::IfMissing)).
    pub missing: Option<&'v str>,
    /// The rule's unit, if the rule denies the request because it has no cost in that unit.
    pub missing_unit: Option<&'v str>,
    /// Whether an override blocks the key, so that the rule denies the request regardless of its counter.
    pub is_blocked: bool,
}

impl RuleDecision<'_> {
    /// Whether this decision denies the request. Never for shadow rules: log-only rules and candidates.
    pub fn is_denying(&self) -> bool {
        !self.decision.is_allowed() && !self.rule.is_shadow()
    }

    /// Whether the rule is a shadow rule and would have denied the request if it were enforced.
    pub fn is_shadowed(&self) -> bool {
        !self.decision.is_allowed() && self.rule.is_shadow()
    }

    /// Returns the window of an abuse rule that blocks the key. `None` if no abuse rule denied the request,
    /// or if the denial is not based on counted attempts.
    pub fn block_scope(&self) -> Option<BlockScope> {
        self.decision.block_scope()
    }
}

impl Verdict {
    /// Returns the outcome.
    pub fn outcome(&self) -> Outcome {
        if let Some(list_match) = &self.list_match {
            return if list_match.verdict == KeyVerdict::Allow { Outcome::Allowed } else { Outcome::Denied };
        }
        let mut denying = self.rules().filter(RuleDecision::is_denying).peekable();
        if denying.peek().is_none() {
            return Outcome::Allowed;
        }
        if denying.all(|denied| self.is_throttle(&denied)) { Outcome::Throttled } else { Outcome::Denied }
    }

    /// Whether the request may proceed.
    pub fn is_allowed(&self) -> bool {
        match &self.list_match {
            Some(list_match) => list_match.verdict == KeyVerdict::Allow,
            None => !self.is_denied_by_a_rule(),
        }
    }

    /// Whether a rule [denies](RuleDecision::is_denying) the request. Looks at nothing else of the rules.
    pub(super) fn is_denied_by_a_rule(&self) -> bool {
        self.outcomes.iter().any(|outcome| {
            outcome.decision.as_ref().is_some_and(|decision| !decision.is_allowed())
                && self.set.at(outcome.rule).is_some_and(|compiled| !compiled.rule.is_shadow())
        })
    }

    /// Returns the time after which all rules would allow the request, if no other request comes first. Zero
    /// if the request is allowed, `None` if it will never be.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_on_block_list() {
            return None;
        }
        let mut denying = self.rules().filter(RuleDecision::is_denying);
        denying.try_fold(Duration::ZERO, |wait, rule| Some(wait.max(rule.decision.retry_after()?)))
    }

    /// Returns the concurrency rules that apply to the request and were skipped: only a
    /// [reservation](super::Engine::reserve) can hold units.
    pub fn skipped_rules(&self) -> impl Iterator<Item = &Rule> {
        self.unheld.iter().filter_map(|number| self.set.at(*number)).map(|compiled| &compiled.rule)
    }

    /// Returns the rule that decided a denial: the first rule by priority that denies the request, where
    /// rejecting rules precede throttling ones. `None` if the request is allowed, or if a list decided.
    pub fn decided_by(&self) -> Option<RuleDecision<'_>> {
        if self.list_match.is_some() {
            return None;
        }
        let denying = || self.rules().filter(RuleDecision::is_denying);
        denying().find(|denied| !self.is_throttle(denied)).or_else(|| denying().next())
    }

    /// Returns the attribute by which an allow list or a block list decided the request.
    pub fn listed_by(&self) -> Option<&str> {
        self.list_match.as_ref().map(|list_match| self.set.attribute_name(list_match.attribute))
    }

    /// Returns the entry of the allow list or block list that decided the request: a value, or the network
    /// that the address is in.
    pub fn listed_entry(&self) -> Option<&str> {
        self.list_match.as_ref().map(|list_match| list_match.entry.as_str())
    }

    /// Whether the request is denied because an operator blocked its client: by a block list, or by an
    /// override of the key of the rule that decided. No counter is involved, and waiting does not help.
    pub fn is_blocked(&self) -> bool {
        self.is_on_block_list() || self.decided_by().is_some_and(|decided| decided.is_blocked)
    }

    fn is_on_block_list(&self) -> bool {
        self.list_match.as_ref().is_some_and(|list_match| list_match.verdict == KeyVerdict::Block)
    }

    /// Returns the decisions of all rules that apply, by priority.
    pub fn rules(&self) -> impl Iterator<Item = RuleDecision<'_>> {
        self.rules_by_index().map(|(_, decided)| decided)
    }

    /// The same as [`Verdict::rules`], with the index of each outcome. Skips outcomes without a decision.
    pub(super) fn rules_by_index(&self) -> impl Iterator<Item = (usize, RuleDecision<'_>)> {
        self.outcomes.iter().enumerate().filter_map(|(index, outcome)| {
            let decision = outcome.decision.as_ref()?;
            let (compiled, key) = (self.set.at(outcome.rule)?, self.key(index));
            let limit = if outcome.has_override { compiled.limit_of(key) } else { &compiled.limit };
            let (missing, missing_unit) = match outcome.missing {
                Some(MissingInput::Attribute(attribute)) => (Some(self.set.attribute_name(attribute)), None),
                Some(MissingInput::Cost) => (None, Some(compiled.rule.unit_name())),
                None => (None, None),
            };
            let is_blocked = outcome.is_blocked && outcome.missing.is_none();
            let (rule, cost) = (&compiled.rule, outcome.cost);
            Some((
                index,
                RuleDecision { rule, key, cost, limit, decision, missing, missing_unit, is_blocked },
            ))
        })
    }

    /// The same as [`Verdict::rules`], but of several counters of one rule only the tightest: the one with the
    /// longest wait, or with the fewest units left. Clients know limits by the names of their rules.
    #[cfg(feature = "http")]
    pub(crate) fn tightest_of_each_rule(&self) -> impl Iterator<Item = RuleDecision<'_>> {
        // Counters of one rule follow each other, and most requests have one counter per rule.
        let is_repeated = self.outcomes.windows(2).any(|pair| pair[0].rule == pair[1].rule);
        let rule_of = |index: usize| self.outcomes.get(index).map(|outcome| outcome.rule);
        let is_tightest = move |(index, decided): &(usize, RuleDecision<'_>)| {
            let of_same_rule = |(other, _): &(usize, RuleDecision<'_>)| rule_of(*other) == rule_of(*index);
            let mut same_rule = self.rules_by_index().filter(of_same_rule);
            let tightness = (tightness(decided.decision), Reverse(*index));
            !is_repeated
                || same_rule
                    .all(|(other, decided)| (self::tightness(decided.decision), Reverse(other)) <= tightness)
        };
        self.rules_by_index().filter(is_tightest).map(|(_, decided)| decided)
    }

    /// Returns the counter name of an outcome.
    pub(super) fn key(&self, index: usize) -> &str {
        let end_of = |index: usize| self.outcomes.get(index).map_or(0, |outcome| outcome.key_end);
        let start = index.checked_sub(1).map_or(0, end_of);
        self.keys.get(start..end_of(index)).unwrap_or_default()
    }

    /// Whether the denial was made because the store failed. This is the server's fault and not the client's.
    /// A cost that can never fit does not count as such a denial.
    pub fn is_substitute(&self) -> bool {
        self.decided_by().is_some_and(|denied| denied.decision.is_substitute() && !denied.decision.is_never())
    }

    /// Returns the rules that decided the request.
    pub fn set(&self) -> &Arc<RuleSet> {
        &self.set
    }

    fn is_throttle(&self, denied: &RuleDecision<'_>) -> bool {
        denied.rule.action == Action::Throttle
            && denied.decision.retry_after().is_some_and(|wait| wait <= denied.rule.longest_delay())
    }
}

/// Returns a value that is greater the tighter a decision is.
#[cfg(feature = "http")]
fn tightness(decision: &Decision) -> (bool, bool, Option<Duration>, Reverse<u64>) {
    let wait = decision.retry_after();
    (!decision.is_allowed(), wait.is_none(), wait, Reverse(decision.remaining()))
}
