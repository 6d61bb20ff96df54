//! What a request is told: one answer over all rules that apply to it.

mod comparison;

use std::sync::Arc;
use std::time::Duration;

pub use comparison::Comparison;
pub(super) use comparison::Denying;

use super::definition::{Action, KeyVerdict, Rule};
use super::set::{Listed, RuleSet};
use crate::decision::{BlockScope, Decision};
use crate::strategy::Limit;

/// What a request may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Go ahead: every rule let it pass, and was spent.
    Allowed,
    /// Wait for [`Verdict::retry_after`] and ask again: only throttling rules denied it, and not for long. Nothing was
    /// spent or reserved.
    Throttled,
    /// Not go ahead. Nothing was spent.
    Denied,
}

/// The answer to one request, by one version of the rules.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub(super) set: Arc<RuleSet>,
    pub(super) listed: Option<Listed>,
    /// The rules that apply, in the order of their priorities.
    pub(super) answers: Vec<Answer>,
    /// The names of their counters, one after the other.
    pub(super) keys: String,
}

/// What one rule answered.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) rule: u32,
    /// Where its counter's name ends among all names.
    pub(super) key_end: usize,
    /// Whether the key has a limit of its own.
    pub(super) is_special: bool,
    /// Whether the key is denied for good, so that its counter is not asked.
    pub(super) is_blocked: bool,
    /// The attribute that the request lacks, where the rule is blocked because of that.
    pub(super) missing: Option<u16>,
    /// `None` until it was asked.
    pub(super) decision: Option<Decision>,
}

/// What one rule decided.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RuleDecision<'v> {
    /// The rule.
    pub rule: &'v Rule,
    /// The name of the counter it was asked for; empty where an attribute is `missing`.
    pub key: &'v str,
    /// The limit that holds for that counter.
    pub limit: &'v Limit,
    /// What it decided by itself.
    pub decision: &'v Decision,
    /// The attribute of the rule's key that the request lacks, where the rule denies it because of that
    /// ([`IfMissing`](super::IfMissing)).
    pub missing: Option<&'v str>,
}

impl RuleDecision<'_> {
    /// Whether this keeps the request from going ahead: a denial of a rule that neither only logs nor is a candidate.
    pub fn is_denying(&self) -> bool {
        !self.decision.is_allowed() && !self.rule.is_shadow()
    }

    /// Whether the request would have been denied if the rule, which only logs or is a candidate, were in force.
    pub fn is_shadowed(&self) -> bool {
        !self.decision.is_allowed() && self.rule.is_shadow()
    }

    /// Which window of an abuse rule blocks the key; `None` for what other rules deny, and for what no count stands behind.
    pub fn block_scope(&self) -> Option<BlockScope> {
        self.decision.block_scope()
    }
}

impl Verdict {
    /// What the request may do.
    pub fn outcome(&self) -> Outcome {
        if let Some(listed) = self.listed {
            return if listed.verdict == KeyVerdict::Allow { Outcome::Allowed } else { Outcome::Denied };
        }
        let mut denying = self.rules().filter(RuleDecision::is_denying).peekable();
        if denying.peek().is_none() {
            return Outcome::Allowed;
        }
        if denying.all(|denied| self.is_throttle(&denied)) { Outcome::Throttled } else { Outcome::Denied }
    }

    /// Whether the request may go ahead.
    pub fn is_allowed(&self) -> bool {
        match self.listed {
            Some(listed) => listed.verdict == KeyVerdict::Allow,
            None => !self.rules().any(|rule| rule.is_denying()),
        }
    }

    /// How long to wait until every rule would let the request pass, if nobody else asks: zero when it is allowed,
    /// `None` when it never will be.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.listed.is_some_and(|listed| listed.verdict == KeyVerdict::Block) {
            return None;
        }
        let mut denying = self.rules().filter(RuleDecision::is_denying);
        denying.try_fold(Duration::ZERO, |wait, rule| Some(wait.max(rule.decision.retry_after()?)))
    }

    /// The rule that decided: the first that denies, by priority, where one that rejects goes before those that
    /// throttle. `None` if the request is allowed, or a list decided.
    pub fn decided_by(&self) -> Option<RuleDecision<'_>> {
        if self.listed.is_some() {
            return None;
        }
        let denying = || self.rules().filter(RuleDecision::is_denying);
        denying().find(|denied| !self.is_throttle(denied)).or_else(|| denying().next())
    }

    /// The attribute by which an allow list or a block list decided.
    pub fn listed_by(&self) -> Option<&str> {
        self.listed.map(|listed| self.set.attribute_name(listed.attribute))
    }

    /// Every rule that applies, by priority, with what it decided and has left.
    pub fn rules(&self) -> impl Iterator<Item = RuleDecision<'_>> {
        self.rules_by_answer().map(|(_, decided)| decided)
    }

    /// The same, each with the place of its answer: answers without a decision are passed over.
    pub(super) fn rules_by_answer(&self) -> impl Iterator<Item = (usize, RuleDecision<'_>)> {
        self.answers.iter().enumerate().filter_map(|(index, answer)| {
            let decision = answer.decision.as_ref()?;
            let (compiled, key) = (self.set.at(answer.rule)?, self.key(index));
            let limit = if answer.is_special { compiled.limit_of(key) } else { &compiled.limit };
            let missing = answer.missing.map(|attribute| self.set.attribute_name(attribute));
            Some((index, RuleDecision { rule: &compiled.rule, key, limit, decision, missing }))
        })
    }

    /// The name of the counter of an answer.
    pub(super) fn key(&self, index: usize) -> &str {
        let end_of = |index: usize| self.answers.get(index).map_or(0, |answer| answer.key_end);
        let start = index.checked_sub(1).map_or(0, end_of);
        self.keys.get(start..end_of(index)).unwrap_or_default()
    }

    /// Whether the denial was made because the store could not be asked: a matter of the server's, not of the caller's. A cost that
    /// never fits is the caller's.
    pub fn is_substitute(&self) -> bool {
        self.decided_by().is_some_and(|denied| denied.decision.is_substitute() && !denied.decision.is_never())
    }

    /// The rules that answered.
    pub fn set(&self) -> &Arc<RuleSet> {
        &self.set
    }

    fn is_throttle(&self, denied: &RuleDecision<'_>) -> bool {
        denied.rule.action == Action::Throttle
            && denied.decision.retry_after().is_some_and(|wait| wait <= denied.rule.longest_delay())
    }
}
