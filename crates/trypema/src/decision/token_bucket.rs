//! The token bucket's additions to a decision.

use std::time::Duration;

use super::{Decision, DecisionTime, NEVER};
use crate::clock::Timestamp;
use crate::strategy::{TokenBucketLimits, TokenBucketOutcome, TokenLimit};
use crate::units::MAX_EXACT;

/// A decision of a token bucket over all its limits. Its values are computed when a method is called.
///
/// ```
/// use std::time::Duration;
/// use trypema::{RateLimiter, TokenBucketLimits, TokenLimit};
///
/// let rl = RateLimiter::builder().build()?;
/// let limits = TokenBucketLimits::new([
///     TokenLimit::new(10, Duration::from_secs(60))?,
///     TokenLimit::new(12, Duration::from_secs(3600))?,
/// ])?;
/// let bucket = rl.local().token_bucket();
/// assert_eq!(bucket.take("ann", &limits, 7).balance(0).unwrap().remaining, 3.0);
///
/// let denied = bucket.take("ann", &limits, 4);
/// assert_eq!(denied.failed_limit(), Some(0));
/// assert!(denied.retry_after().is_some_and(|wait| wait <= Duration::from_secs(6)));
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone)]
pub struct TokenBucketDecision<'l> {
    pub(crate) limits: &'l TokenBucketLimits,
    pub(crate) outcome: TokenBucketOutcome,
    pub(crate) decided_at: DecisionTime,
}

/// The balance of one limit of a token bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimitBalance {
    /// The limit.
    pub limit: TokenLimit,
    /// The tokens left after the call, with fractions.
    pub remaining: f64,
}

impl TokenBucketDecision<'_> {
    /// Whether the call may go ahead.
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.outcome.is_admitted
    }

    /// Returns the time after which every limit has the cost, see [`Decision::retry_after`].
    pub fn retry_after(&self) -> Option<Duration> {
        self.core().retry_after()
    }

    /// Returns the whole tokens left in the limit that has the fewest.
    pub fn remaining(&self) -> u64 {
        self.core().remaining()
    }

    /// Whether the cost exceeds the capacity of some limit.
    pub fn is_never(&self) -> bool {
        self.core().is_never()
    }

    /// Returns the time until every limit is full, if no other call is made.
    pub fn reset_after(&self) -> Duration {
        self.core().reset_after()
    }

    /// Returns the capacity of the limit that has the fewest tokens left.
    pub fn limit(&self) -> u64 {
        self.core().limit()
    }

    /// Whether a fallback decided because the store failed, see [`Decision::is_substitute`].
    pub fn is_substitute(&self) -> bool {
        self.core().is_substitute()
    }

    /// Returns the position of the first limit that did not have the cost, or `None` if the call was allowed.
    pub fn failed_limit(&self) -> Option<usize> {
        (!self.outcome.is_admitted).then_some(self.outcome.failed)
    }

    /// Returns the balance of the limit at `position`.
    pub fn balance(&self, position: usize) -> Option<LimitBalance> {
        let limit = *self.limits.as_slice().get(position)?;
        Some(LimitBalance { limit, remaining: limit.balance(self.outcome.owed_after(position, &limit)) })
    }

    /// Returns the balance of each limit, in their order.
    pub fn balances(&self) -> impl Iterator<Item = LimitBalance> {
        (0..self.limits.as_slice().len()).filter_map(|position| self.balance(position))
    }

    /// Returns the decision in the form that all strategies share, for the limit that has the fewest tokens
    /// left.
    pub fn core(&self) -> Decision {
        let outcome = &self.outcome;
        let (mut tightest, mut not_before, mut resets_at) = (None, outcome.at, outcome.at);
        for (position, limit) in self.limits.as_slice().iter().enumerate() {
            let owed = outcome.owed_after(position, limit);
            let remaining = limit.left(owed);
            if tightest.is_none_or(|(least, _)| remaining < least) {
                tightest = Some((remaining, limit.capacity()));
            }
            resets_at = resets_at.max(outcome.at + limit.paid_within_us(owed));
            not_before = not_before.max(outcome.at + limit.wait_us(outcome.owed[position], outcome.cost));
        }
        let (remaining, limit) = tightest.unwrap_or((0, 0));
        let is_never = self.limits.as_slice().iter().any(|limit| outcome.cost > limit.capacity());
        // A large overdraft may be paid only after the last time that can be represented.
        let bounded = |micros: u64| Timestamp::derived(micros.min(MAX_EXACT));
        let not_before = bounded(outcome.not_before.unwrap_or(not_before));
        Decision {
            is_allowed: outcome.is_admitted,
            attempts: None,
            limit,
            remaining,
            not_before: if is_never { NEVER } else { not_before },
            resets_at: bounded(outcome.resets_at.unwrap_or(resets_at)),
            decided_at: self.decided_at,
        }
    }
}
