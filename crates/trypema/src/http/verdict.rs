//! Verdicts of rules in the form that clients see.

use std::borrow::Cow;
use std::iter::once;
use std::time::Duration;

use super::error_code::ErrorCode;
use super::headers::whole_seconds;
use super::policy::{Policy, QuotaUnit};
use super::problem::Problem;
use crate::decision::Decision;
use crate::rules::{REQUESTS, RuleDecision, Verdict};
use crate::strategy::Limit;

impl<'a> Policy<'a> {
    /// Returns the rules of a verdict to report to the client. Leaves out shadow rules (log-only rules and
    /// candidates), and rules whose store failed, which have no numbers.
    pub fn of_verdict(verdict: &'a Verdict) -> impl Iterator<Item = Self> {
        let is_reported =
            verdict.is_allowed() || ErrorCode::of_verdict(verdict) != ErrorCode::ServiceUnavailable;
        Self::of_rules(verdict).filter(move |policy| {
            is_reported && (policy.decision.is_allowed() || is_by_limit(policy.decision))
        })
    }

    /// Returns the enforced rules of a verdict, each once.
    pub(crate) fn of_rules(verdict: &'a Verdict) -> impl Iterator<Item = Self> {
        let rules = verdict.tightest_of_each_rule().filter(|rule| !rule.rule.is_shadow());
        rules.map(|rule| {
            let unit = QuotaUnit::of(rule.limit, rule.rule.unit_name());
            Policy {
                name: &rule.rule.id,
                quota: rule.limit.quota(),
                window: unit.window_of(rule.limit),
                unit,
                decision: rule.decision,
            }
        })
    }
}

impl QuotaUnit {
    /// Returns the meaning of the units of `limit`, of which requests ask `name`.
    pub(crate) fn of(limit: &Limit, name: &str) -> Self {
        match limit.is_held() {
            true if name == REQUESTS => Self::ConcurrentRequests,
            true => Self::Held,
            false => Self::Spent,
        }
    }

    /// Returns the window of `limit`. Units that are held have none: they become available when they are
    /// released.
    pub(crate) fn window_of(self, limit: &Limit) -> Option<Duration> {
        (self == Self::Spent).then(|| limit.window())
    }
}

impl ErrorCode {
    /// Returns the code of a verdict that denies a request. A limit that is reached takes precedence over a
    /// store that failed.
    pub fn of_verdict(verdict: &Verdict) -> Self {
        if verdict.is_blocked() {
            return Self::Blocked;
        }
        let Some(decided) = verdict.decided_by() else { return Self::RateLimited };
        let denying = verdict.rules().filter(RuleDecision::is_denying);
        let by_limit = once(decided).chain(denying).find(|rule| is_by_limit(rule.decision));
        by_limit.map_or(Self::ServiceUnavailable, |rule| Self::of_limit(rule.limit))
    }

    /// Returns the code of a denial by `limit`.
    pub(crate) fn of_limit(limit: &Limit) -> Self {
        if limit.counts_attempts() { Self::TooManyAttempts } else { Self::RateLimited }
    }
}

impl Problem {
    /// Creates the problem of a request that rules denied; `None` if they allowed it.
    ///
    /// Names the rules whose limit is reached, and the time after which all rules would allow the request,
    /// unless one never will. If the rule that decided denies the request because of a missing attribute,
    /// names that attribute.
    pub fn of_verdict(verdict: &Verdict) -> Option<Self> {
        if verdict.is_allowed() {
            return None;
        }
        let denying = Policy::of_verdict(verdict).filter(|policy| !policy.decision.is_allowed());
        let problem = Self::new(ErrorCode::of_verdict(verdict))
            .with_violated_policies(denying.map(|Policy { name, .. }| name))
            .with_block_end(block_ends_after(verdict).map(whole_seconds));
        Some(match verdict.retry_after() {
            Some(wait) => problem.with_retry_after(whole_seconds(wait)),
            None => problem.with_detail(never_detail(verdict)),
        })
    }
}

/// Returns the time until the last block of the abuse rules that deny a request ends.
fn block_ends_after(verdict: &Verdict) -> Option<Duration> {
    verdict.rules().filter(RuleDecision::is_denying).filter_map(|rule| rule.decision.block_ends_after()).max()
}

/// Returns the reason why a retry of a denied request cannot succeed.
pub(crate) fn never_detail(verdict: &Verdict) -> Cow<'static, str> {
    let decided = verdict.decided_by();
    let lacks = decided.and_then(|decided| match (decided.missing, decided.missing_unit) {
        (Some(attribute), _) => {
            Some(format!("The request has no {attribute:?}, which rule {:?} needs.", decided.rule.id))
        }
        (None, unit) => {
            Some(format!("The request has no cost in {:?}, which rule {:?} counts.", unit?, decided.rule.id))
        }
    });
    match lacks {
        Some(lacks) => Cow::Owned(lacks),
        None if verdict.is_blocked() => Cow::Borrowed("An operator blocked this client."),
        None => Cow::Borrowed("Retrying will not succeed."),
    }
}

/// Whether a limit made a denial, and not the failure policy.
pub(crate) fn is_by_limit(denied: &Decision) -> bool {
    ErrorCode::of_denial(denied) != ErrorCode::ServiceUnavailable
}
