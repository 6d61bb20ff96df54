//! Owned checks, which a thread or a task can hold, and one limit of each strategy.

use std::time::Duration;

use trypema::{
    AbsoluteLimit, AbuseLimit, AbuseTier, Check, Decision, FixedWindowLimit, HardLimitFactor, Limit,
    SlidingWindowLimit, SuppressedLimit, TokenBucketLimits, TokenLimit,
};

/// An owned check: a key, its limit and a cost.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) key: String,
    pub(crate) limit: Limit,
    pub(crate) cost: u64,
    pub(crate) is_postpaid: bool,
}

impl Asked {
    pub(crate) fn new(key: &str, limit: &Limit, cost: u64) -> Self {
        Self { key: key.to_owned(), limit: limit.clone(), cost, is_postpaid: false }
    }

    /// Returns the same check with another cost, all of which must be free.
    pub(crate) fn costing(&self, cost: u64) -> Self {
        Self { cost, is_postpaid: false, ..self.clone() }
    }

    /// Returns the same check, postpaid.
    pub(crate) fn postpaid(self) -> Self {
        Self { is_postpaid: true, ..self }
    }

    fn check(&self) -> Check<'_> {
        Check { is_postpaid: self.is_postpaid, ..Check::new(&self.key, &self.limit, self.cost) }
    }

    pub(crate) fn is_suppressed(&self) -> bool {
        matches!(self.limit, Limit::Suppressed(_))
    }
}

/// Borrows owned checks as the [`Check`]s that the library takes.
pub(crate) fn checks(asked: &[Asked]) -> Vec<Check<'_>> {
    asked.iter().map(Asked::check).collect()
}

/// Every field of a decision that a caller can read, in comparable form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) is_allowed: bool,
    limit: u64,
    remaining: u64,
    retry_after: Option<Duration>,
    reset_after: Duration,
}

impl View {
    pub(crate) fn of(decision: &Decision) -> Self {
        Self {
            is_allowed: decision.is_allowed(),
            limit: decision.limit(),
            remaining: decision.remaining(),
            retry_after: decision.retry_after(),
            reset_after: decision.reset_after(),
        }
    }
}

/// Returns one limit of each strategy that admits `capacity` units per `window`. The hard limit of the
/// suppressed strategy is `factor` times the capacity.
pub(crate) fn six(capacity: u64, window: Duration, factor: f64) -> [Limit; 6] {
    let absolute = AbsoluteLimit::per_window(capacity, window).unwrap();
    let tier = |spare| AbuseTier::new(window, capacity + spare, window).unwrap();
    [
        absolute.into(),
        SuppressedLimit::above(absolute, HardLimitFactor::try_from(factor).unwrap()).into(),
        TokenBucketLimits::from(TokenLimit::new(capacity, window).unwrap()).into(),
        SlidingWindowLimit::new(capacity, window).unwrap().into(),
        FixedWindowLimit::new(capacity, window).unwrap().into(),
        AbuseLimit::new(tier(1), tier(5)).into(),
    ]
}
