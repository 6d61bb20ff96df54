//! What rules decided, as clients are told of it.

use std::borrow::Cow;
use std::iter::once;

use super::error_code::ErrorCode;
use super::headers::whole_seconds;
use super::policy::Policy;
use super::problem::Problem;
use crate::decision::Decision;
use crate::rules::{RuleDecision, Verdict};
use crate::strategy::Limit;

impl<'a> Policy<'a> {
    /// What clients are told of the rules that were asked: those that only log, and candidates, are nobody's business, and those that could not be
    /// asked have no numbers.
    pub fn of_verdict(verdict: &'a Verdict) -> impl Iterator<Item = Self> {
        let is_told = verdict.is_allowed() || ErrorCode::of_verdict(verdict) != ErrorCode::ServiceUnavailable;
        Self::of_rules(verdict)
            .filter(move |policy| is_told && (policy.decision.is_allowed() || is_by_limit(policy.decision)))
    }

    /// The rules that may keep requests out.
    pub(crate) fn of_rules(verdict: &'a Verdict) -> impl Iterator<Item = Self> {
        let rules = verdict.rules().filter(|rule| !rule.rule.is_shadow());
        rules.map(|rule| Policy {
            name: &rule.rule.id,
            quota: rule.limit.quota(),
            window: Some(rule.limit.window()),
            decision: rule.decision,
        })
    }
}

impl ErrorCode {
    /// What a verdict that denies a request means: a limit that was reached counts before a store that could not be asked.
    pub fn of_verdict(verdict: &Verdict) -> Self {
        let Some(decided) = verdict.decided_by() else { return Self::RateLimited };
        let denying = verdict.rules().filter(RuleDecision::is_denying);
        let by_limit = once(decided).chain(denying).find(|rule| is_by_limit(rule.decision));
        by_limit.map_or(Self::ServiceUnavailable, |rule| Self::of_limit(rule.limit))
    }

    /// What a denial by `limit` means.
    pub(crate) fn of_limit(limit: &Limit) -> Self {
        if matches!(limit, Limit::Abuse(_)) { Self::TooManyAttempts } else { Self::RateLimited }
    }
}

impl Problem {
    /// The problem of a request that rules denied; `None` if they allowed it.
    ///
    /// Names the rules whose limit was reached, and the wait after which all would let it pass, unless one never does;
    /// and the attribute that the request lacks, if the rule that decided denies it because of that.
    pub fn of_verdict(verdict: &Verdict) -> Option<Self> {
        if verdict.is_allowed() {
            return None;
        }
        let denying = Policy::of_verdict(verdict).filter(|policy| !policy.decision.is_allowed());
        let problem = Self::new(ErrorCode::of_verdict(verdict))
            .with_violated_policies(denying.map(|Policy { name, .. }| name));
        Some(match verdict.retry_after() {
            Some(wait) => problem.with_retry_after(whole_seconds(wait)),
            None => problem.with_detail(never_detail(verdict)),
        })
    }
}

/// Why trying again does not help a request that rules denied.
pub(crate) fn never_detail(verdict: &Verdict) -> Cow<'static, str> {
    let decided = verdict.decided_by();
    match decided.and_then(|decided| Some((decided.rule, decided.missing?))) {
        Some((rule, attribute)) => {
            Cow::Owned(format!("The request has no {attribute:?}, which rule {:?} needs.", rule.id))
        }
        None => Cow::Borrowed("Trying again does not help."),
    }
}

/// Whether a denial was made by a limit, and not in place of a store that could not be asked.
pub(crate) fn is_by_limit(denied: &Decision) -> bool {
    ErrorCode::of_denial(denied) != ErrorCode::ServiceUnavailable
}
