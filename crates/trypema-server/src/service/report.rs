//! Answers as JSON, for every front end that speaks it and for the command line.

mod counter;
mod explanation;
mod reservation;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use trypema::http::ErrorCode;
use trypema::rules::{Action, ApplyingRule, IfMissing, Outcome, Rule, RuleDecision, Verdict};
use trypema::{Attempts, BlockScope, Decision};

pub(crate) use counter::{KeyResponse, ReleaseHolderResponse, ResetResponse};
pub(crate) use explanation::ExplainResponse;
pub(crate) use reservation::{RenewResponse, ReserveResponse, SettleResponse};

use crate::mode::Mode;

/// The decision about a request.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CheckResponse<'a> {
    /// Whether the request may proceed.
    allowed: bool,
    outcome: OutcomeName,
    /// Milliseconds, rounded up, after which the request would be allowed if no other request comes; 0 if
    /// it is allowed now, `null` if it never will be.
    retry_after_ms: Option<u64>,
    /// The id of the rule that denied the request.
    decided_by: Option<&'a str>,
    /// The attribute whose value is on an allow list or a block list that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    listed_by: Option<&'a str>,
    /// The entry of that list: a value, or the network that contains the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    listed_entry: Option<&'a str>,
    /// Every rule that applies, by priority.
    rules: Vec<RuleReport<'a>>,
    /// The concurrency rules that the check skipped, because only a reservation can hold units.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<SkippedRule<'a>>,
}

/// A rule that applies to a request, and that a check skips.
#[derive(Debug, Serialize, JsonSchema)]
struct SkippedRule<'a> {
    /// The id of the rule.
    rule: &'a str,
    /// The name of the rule, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The reason why it was skipped.
    reason: &'static str,
}

/// The reason why a check skips a concurrency rule.
const HOLDS_NOTHING: &str = "a check holds nothing; this rule limits reservations (/v1/reserve)";

/// The outcome of a request.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OutcomeName {
    /// The request may proceed.
    Allowed,
    /// The request must wait for `retry_after_ms` and be sent again; nothing was spent.
    Throttled,
    /// The request must not proceed; nothing was spent.
    Denied,
    /// The request must not proceed: a block list, or an override of its key, blocks the client. Nothing was
    /// spent, and waiting does not help.
    Blocked,
    /// The request must not proceed, because the store is unavailable and `on_store_failure` says so. The
    /// cause is the server, not the caller.
    Unavailable,
}

impl OutcomeName {
    pub(super) fn of(verdict: &Verdict) -> Self {
        match verdict.outcome() {
            Outcome::Allowed => Self::Allowed,
            _ if is_by_store(verdict) => Self::Unavailable,
            _ if verdict.is_blocked() => Self::Blocked,
            Outcome::Throttled => Self::Throttled,
            Outcome::Denied => Self::Denied,
        }
    }
}

/// The decision of one rule.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RuleReport<'a> {
    /// The id of the rule.
    rule: &'a str,
    /// The name of the rule, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The name of the counter; `null` if the request lacks an attribute of the rule's key, or a cost in its
    /// unit.
    key: Option<&'a str>,
    /// The unit that the rule counts, if it is not `requests`.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'a str>,
    /// The units that the request asks of this counter. Left out if that is one of `requests`.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    /// Whether this rule alone allows the request.
    allowed: bool,
    /// Whether an override blocks the key. The rule then denies every request, and `limit` is 0.
    #[serde(skip_serializing_if = "is_false")]
    blocked: bool,
    action: Action,
    /// The maximum number of units.
    limit: u64,
    /// The number of units that are left after the request, or without it if another rule denies it.
    remaining: u64,
    retry_after_ms: Option<u64>,
    /// Milliseconds, rounded up, until no spent units count any more.
    reset_after_ms: u64,
    #[serde(flatten)]
    block: BlockReport,
    /// The attribute of the rule's key that the request lacks, if the rule denies the request for that
    /// reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_attribute: Option<&'a str>,
    /// The rule's unit, if the request has no cost in it and the rule denies the request for that reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_unit: Option<&'a str>,
    /// The rule's `if_missing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    if_missing: Option<IfMissing>,
    /// Whether the store was unavailable, so that `on_store_failure` decided.
    #[serde(skip_serializing_if = "is_false")]
    substitute: bool,
    /// Only in responses to `record`: whether the rule counted the request. `false` if the store was
    /// unavailable and `on_store_failure` is `allow` or `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    counted: Option<bool>,
    /// The number of units that are left before the request; only in explanations.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<u64>,
}

/// The counts of an abuse rule, and the window that blocks. Other rules have none of these fields.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
pub(super) struct BlockReport {
    /// The window that blocks the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<ScopeName>,
    /// Milliseconds, rounded up, until the block ends. `retry_after_ms` may be longer: then the same request would
    /// start the next block.
    #[serde(skip_serializing_if = "Option::is_none")]
    block_ends_after_ms: Option<u64>,
    /// Attempts in the short window.
    #[serde(skip_serializing_if = "Option::is_none")]
    short_count: Option<u64>,
    /// Attempts in the long window.
    #[serde(skip_serializing_if = "Option::is_none")]
    long_count: Option<u64>,
}

/// A window of an abuse rule.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ScopeName {
    /// The short window.
    Temp,
    /// The long window.
    Long,
}

impl From<&Decision> for BlockReport {
    fn from(decision: &Decision) -> Self {
        Self {
            scope: decision.block_scope().map(|scope| match scope {
                BlockScope::Temp => ScopeName::Temp,
                BlockScope::Long => ScopeName::Long,
            }),
            block_ends_after_ms: milliseconds(decision.block_ends_after()),
            short_count: decision.attempts().map(Attempts::short_count),
            long_count: decision.attempts().map(Attempts::long_count),
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(is_so: &bool) -> bool {
    !is_so
}

/// Whether the failure policy denied the request because the store was unavailable.
fn is_by_store(verdict: &Verdict) -> bool {
    verdict.rules().any(|rule| rule.decision.is_substitute())
        && ErrorCode::of_verdict(verdict) == ErrorCode::ServiceUnavailable
}

impl<'a> CheckResponse<'a> {
    pub(crate) fn new(verdict: &'a Verdict, mode: Mode) -> Self {
        let counted = |rule: &RuleDecision<'_>| (mode == Mode::Record).then(|| !rule.decision.is_uncounted());
        let outcome = OutcomeName::of(verdict);
        Self {
            allowed: matches!(outcome, OutcomeName::Allowed),
            outcome,
            retry_after_ms: milliseconds(verdict.retry_after()),
            decided_by: verdict.decided_by().map(|rule| rule.rule.id.as_str()),
            listed_by: verdict.listed_by(),
            listed_entry: verdict.listed_entry(),
            // Candidates never affect a request, so they are left out.
            rules: verdict
                .rules()
                .filter(|rule| rule.rule.candidate_for.is_none())
                .map(|rule| RuleReport { counted: counted(&rule), ..RuleReport::from(rule) })
                .collect(),
            skipped: verdict
                .skipped_rules()
                .filter(|rule| rule.candidate_for.is_none())
                .map(|rule| SkippedRule { rule: &rule.id, name: rule.name.as_deref(), reason: HOLDS_NOTHING })
                .collect(),
        }
    }
}

impl<'a> From<RuleDecision<'a>> for RuleReport<'a> {
    fn from(decided: RuleDecision<'a>) -> Self {
        let decision = decided.decision;
        let unit = counted_unit(decided.rule);
        let lacks_input = decided.missing.is_some() || decided.missing_unit.is_some();
        Self {
            rule: &decided.rule.id,
            name: decided.rule.name.as_deref(),
            key: (!lacks_input).then_some(decided.key),
            unit,
            cost: (unit.is_some() || decided.cost != 1).then_some(decided.cost),
            allowed: decision.is_allowed(),
            blocked: decided.is_blocked,
            action: decided.rule.action,
            limit: decision.limit(),
            remaining: decision.remaining(),
            retry_after_ms: milliseconds(decision.retry_after()),
            reset_after_ms: rounded_up(decision.reset_after()),
            block: BlockReport::from(decision),
            missing_attribute: decided.missing,
            missing_unit: decided.missing_unit,
            if_missing: lacks_input.then_some(decided.rule.if_missing),
            substitute: decision.is_substitute(),
            counted: None,
            left: None,
        }
    }
}

impl<'a> From<ApplyingRule<'a>> for RuleReport<'a> {
    fn from(explained: ApplyingRule<'a>) -> Self {
        Self { left: Some(explained.left), ..Self::from(explained.decision) }
    }
}

/// Returns the unit that a rule counts, if it is not `requests`.
pub(super) fn counted_unit(rule: &Rule) -> Option<&str> {
    Some(rule.unit_name()).filter(|unit| *unit != "requests")
}

/// Converts a wait to whole milliseconds, rounded up, so that no client retries too early.
pub(super) fn milliseconds(wait: Option<Duration>) -> Option<u64> {
    wait.map(rounded_up)
}

pub(super) fn rounded_up(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// Converts the life of a reservation to whole milliseconds, rounded down, so that no client relies on it for
/// too long.
pub(super) fn rounded_down(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
