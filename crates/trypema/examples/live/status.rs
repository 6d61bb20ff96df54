//! Describes the state of a key in a few words.

use std::time::Duration;

use trypema::local::LocalLimiter;
use trypema::strategy::{Absolute, Abuse, FixedWindow, SlidingWindow, Strategy, Suppressed, TokenBucket};
use trypema::{
    AbuseDecision, BlockScope, Decision, LocalRateLimiterProvider, SuppressedDecision, TokenBucketDecision,
};

/// A strategy that the example can show.
pub(crate) trait Shown: Strategy {
    /// Returns the limiter of this strategy.
    fn limiter(local: &LocalRateLimiterProvider) -> &LocalLimiter<Self>;

    /// Describes the state of a key, given the decision of a peek.
    fn status(decision: &Self::Decision<'_>) -> String;
}

impl Shown for Absolute {
    fn limiter(local: &LocalRateLimiterProvider) -> &LocalLimiter<Self> {
        local.absolute()
    }

    fn status(decision: &Decision) -> String {
        open_or_wait(decision)
    }
}

impl Shown for Suppressed {
    fn limiter(local: &LocalRateLimiterProvider) -> &LocalLimiter<Self> {
        local.suppressed()
    }

    fn status(decision: &SuppressedDecision) -> String {
        match decision.suppression_factor() {
            Some(factor) => format!("suppressing {:.0} %", factor * 100.0),
            None => open_or_wait(decision),
        }
    }
}

impl Shown for TokenBucket {
    fn limiter(local: &LocalRateLimiterProvider) -> &LocalLimiter<Self> {
        local.token_bucket()
    }

    fn status(decision: &TokenBucketDecision<'_>) -> String {
        match decision.balance(0) {
            Some(balance) if decision.is_allowed() => format!("open, {:.1} left", balance.remaining),
            _ => open_or_wait(&Self::core(decision)),
        }
    }
}

impl Shown for SlidingWindow {
    fn limiter(local: &LocalRateLimiterProvider) -> &LocalLimiter<Self> {
        local.sliding_window()
    }

    fn status(decision: &Decision) -> String {
        open_or_wait(decision)
    }
}

impl Shown for FixedWindow {
    fn limiter(local: &LocalRateLimiterProvider) -> &LocalLimiter<Self> {
        local.fixed_window()
    }

    fn status(decision: &Decision) -> String {
        open_or_wait(decision)
    }
}

impl Shown for Abuse {
    fn limiter(local: &LocalRateLimiterProvider) -> &LocalLimiter<Self> {
        local.abuse()
    }

    fn status(decision: &AbuseDecision) -> String {
        let left = decision.block_ends_after().as_secs_f64();
        match decision.scope() {
            Some(BlockScope::Temp) => format!("blocked {left:.3} s"),
            Some(BlockScope::Long) => format!("long block {left:.3} s"),
            None => format!("open, {} left", decision.remaining()),
        }
    }
}

fn open_or_wait(decision: &Decision) -> String {
    match decision.retry_after() {
        Some(Duration::ZERO) => format!("open, {} left", decision.remaining()),
        Some(wait) => format!("retry in {:.3} s", wait.as_secs_f64()),
        None => "never".to_owned(),
    }
}
