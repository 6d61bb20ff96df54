//! What the token bucket adds to a decision.

use super::Decision;
use crate::strategy::TokenLimit;

/// A decision of a token bucket over all its limits. Derefs to [`Decision`], which speaks for the limit with
/// the least left.
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
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenBucketDecision {
    pub(crate) core: Decision,
    pub(crate) failed: Option<usize>,
    pub(crate) balances: [Option<LimitBalance>; TokenLimit::MAX_PER_BUCKET],
}

/// What is left of one limit of a token bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimitBalance {
    /// The limit.
    pub limit: TokenLimit,
    /// Tokens left after the call, fractions included.
    pub remaining: f64,
}

impl TokenBucketDecision {
    /// The position of the first limit that lacked the cost; `None` when the call was allowed.
    pub fn failed_limit(&self) -> Option<usize> {
        self.failed
    }

    /// What is left of the limit at `position`.
    pub fn balance(&self, position: usize) -> Option<LimitBalance> {
        self.balances.get(position).copied().flatten()
    }

    /// What is left of each limit, in their order.
    pub fn balances(&self) -> impl Iterator<Item = LimitBalance> {
        self.balances.into_iter().flatten()
    }
}

impl std::ops::Deref for TokenBucketDecision {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.core
    }
}
