//! Converts the library's decisions to the format's notation.

use trypema::{Decision, LimiterDecision, RateLimitDecision};

use super::answer::{Answer, Head, Value, Wait};

/// Returns the fields that every decision has.
pub(crate) fn core_answer(decision: &Decision) -> Answer {
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

pub(crate) fn drawn(is_allowed: bool) -> Head {
    if is_allowed { Head::SuppressedAllowed } else { Head::SuppressedDenied }
}
