//! Converts the library's decisions to the format's notation.

use trypema::strategy::{
    Absolute, Abuse, Concurrency, FixedWindow, SlidingWindow, Strategy, Suppressed, TokenBucket,
};
use trypema::{
    AbuseDecision, Decision, LimiterDecision, RateLimitDecision, SuppressedDecision, TokenBucketDecision,
};

use super::answer::{Answer, Head, Value, Wait};

/// A strategy whose decisions can be converted.
pub(super) trait Worded: Strategy {
    /// Returns the answer of a decision, with all of its numbers.
    fn answer(decision: &Self::Decision<'_>) -> Answer;
}

impl Worded for Absolute {
    fn answer(decision: &Decision) -> Answer {
        core(decision)
    }
}

impl Worded for FixedWindow {
    fn answer(decision: &Decision) -> Answer {
        core(decision)
    }
}

impl Worded for SlidingWindow {
    fn answer(decision: &Decision) -> Answer {
        core(decision)
    }
}

impl Worded for Concurrency {
    fn answer(decision: &Decision) -> Answer {
        core(decision)
    }
}

impl Worded for Suppressed {
    fn answer(decision: &SuppressedDecision) -> Answer {
        let answer = core(decision);
        let Some(factor) = decision.suppression_factor() else { return answer };
        let head = drawn(decision.is_allowed());
        answer.headed(head).with("factor", Value::Fractions(vec![factor]))
    }
}

impl Worded for TokenBucket {
    fn answer(decision: &TokenBucketDecision<'_>) -> Answer {
        let balances = decision.balances().map(|balance| balance.remaining).collect();
        let answer = core(&Self::core(decision)).with("balances", Value::Fractions(balances));
        match decision.failed_limit() {
            Some(position) => answer.with("failed", Value::Count(position as u64)),
            None => answer,
        }
    }
}

impl Worded for Abuse {
    fn answer(decision: &AbuseDecision) -> Answer {
        let answer = core(decision);
        let head = match decision.scope() {
            Some(scope) => Head::Blocked(scope, decision.retry_after().into()),
            None => answer.head,
        };
        answer
            .headed(head)
            .with("short", Value::Count(decision.short_count()))
            .with("long", Value::Count(decision.long_count()))
            .with_time("end", decision.block_ends_after())
    }
}

/// Returns the fields that every decision has.
fn core(decision: &Decision) -> Answer {
    let wait = Wait::from(decision.retry_after());
    let head = if decision.is_allowed() { Head::Allowed } else { Head::Denied(wait) };
    Answer::new(head)
        .with("left", Value::Count(decision.remaining()))
        .with("limit", Value::Count(decision.limit()))
        .with("wait", Value::Time(wait))
        .with_time("reset", decision.reset_after())
}

/// Returns the answer of `inc` and `is_allowed` of the trypema 1.x API.
pub(super) fn compat_answer(decision: RateLimitDecision) -> Answer {
    match decision {
        RateLimitDecision::Allowed => Answer::new(Head::Allowed),
        RateLimitDecision::Rejected { retry_after_ms, remaining_after_waiting, .. } => {
            let wait = match retry_after_ms {
                RateLimitDecision::NEVER_MS => Wait::Never,
                ms => Wait::Micros(ms.saturating_mul(1_000)),
            };
            Answer::new(Head::Rejected(wait))
                .with("remaining_after_waiting", Value::Count(remaining_after_waiting))
        }
        RateLimitDecision::Suppressed { suppression_factor, is_allowed } => {
            Answer::new(drawn(is_allowed)).with("factor", Value::Fractions(vec![suppression_factor]))
        }
    }
}

/// Returns the answer of the abuse strategy's `check`.
pub(super) fn check_answer(decision: LimiterDecision) -> Answer {
    match decision {
        LimiterDecision::Allowed => Answer::new(Head::Allowed),
        LimiterDecision::Blocked { scope, retry_after_secs, short_count, long_count } => {
            let wait = match retry_after_secs {
                u64::MAX => Wait::Never,
                seconds => Wait::Micros(seconds.saturating_mul(1_000_000)),
            };
            Answer::new(Head::Blocked(scope, wait))
                .with("short", Value::Count(short_count))
                .with("long", Value::Count(long_count))
        }
    }
}

fn drawn(is_allowed: bool) -> Head {
    if is_allowed { Head::SuppressedAllowed } else { Head::SuppressedDenied }
}
