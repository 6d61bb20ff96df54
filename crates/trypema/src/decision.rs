//! Decisions: the part that all strategies share, and the additions of each strategy.

mod abuse;
mod rate_limit;
mod suppressed;
mod token_bucket;

use std::time::Duration;

pub use abuse::{AbuseDecision, Attempts, BlockScope, LimiterDecision};
pub use rate_limit::RateLimitDecision;
pub use suppressed::SuppressedDecision;
pub use token_bucket::{LimitBalance, TokenBucketDecision};

use crate::clock::Timestamp;

/// The decision on one call, of any strategy and any provider.
///
/// ```
/// use std::time::Duration;
/// use trypema::{FixedWindowLimit, RateLimiter};
///
/// let rl = RateLimiter::builder().build()?;
/// let limit = FixedWindowLimit::new(3, Duration::from_secs(3600))?;
/// let decision = rl.local().fixed_window().take("ann", &limit, 2);
/// assert!(decision.is_allowed());
/// assert_eq!((decision.limit(), decision.remaining()), (3, 1));
///
/// let denied = rl.local().fixed_window().take("ann", &limit, 2);
/// assert!(denied.retry_after().is_some_and(|wait| !wait.is_zero()));
/// let never = rl.local().fixed_window().take("ann", &limit, 4);
/// assert!(never.is_never() && never.retry_after().is_none());
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    pub(crate) is_allowed: bool,
    /// Only set by the abuse strategy.
    pub(crate) attempts: Option<Attempts>,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) not_before: Timestamp,
    pub(crate) resets_at: Timestamp,
    pub(crate) decided_at: DecisionTime,
}

/// The `not_before` of a cost that can never fit: later than any time.
pub(crate) const NEVER: Timestamp = Timestamp::derived(u64::MAX);

impl Decision {
    /// Returns a permanent denial that is not based on a count. It also stands for a decision that is still
    /// to be made.
    pub(crate) fn refused() -> Self {
        let (not_before, resets_at) = (NEVER, Timestamp::default());
        Self {
            is_allowed: false,
            attempts: None,
            limit: 0,
            remaining: 0,
            not_before,
            resets_at,
            decided_at: DecisionTime::exactly(resets_at),
        }
    }

    /// Whether the call may go ahead.
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// Returns the largest number of units that fit.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the units that are left after this call, or without it if another check denied the request.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns the time after which the same call would be admitted, if no other call is made. It is zero if
    /// the call was allowed, and at least a microsecond if it was denied. Returns `None` if the cost can
    /// never fit.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_us().map(Duration::from_micros)
    }

    #[inline]
    pub(crate) fn retry_after_us(&self) -> Option<u64> {
        if self.is_allowed {
            Some(0)
        } else if self.not_before == NEVER {
            None
        } else {
            Some(self.decided_at.micros_until(self.not_before).max(1))
        }
    }

    /// Whether the cost can never fit.
    pub fn is_never(&self) -> bool {
        !self.is_allowed && self.not_before == NEVER
    }

    /// Whether the store failed, and the configured fallback decided instead (see `redis::OnFailure`). The
    /// caller is not the cause: a server responds to such a denial with 503 instead of 429, unless the cost
    /// can [never](Decision::is_never) fit.
    pub fn is_substitute(&self) -> bool {
        self.decided_at.is_substitute()
    }

    /// Returns the attempts that an abuse limit has counted. Returns `None` for other strategies, and for
    /// decisions that are not based on a count.
    pub fn attempts(&self) -> Option<Attempts> {
        self.attempts
    }

    /// Returns the window of an abuse limit that blocks the key. Returns `None` if there is no block, for
    /// other strategies, and for decisions of a fallback.
    pub fn block_scope(&self) -> Option<BlockScope> {
        let is_blocked = !self.is_allowed && !self.is_never() && !self.is_substitute();
        self.attempts.filter(|_| is_blocked).map(|_| self.decided_at.block_scope())
    }

    /// Returns the time until the block of an abuse limit ends. [`retry_after`](Decision::retry_after) may be longer:
    /// it is the time after which the same call would not be blocked again. Returns `None` where
    /// [`block_scope`](Decision::block_scope) does.
    pub fn block_ends_after(&self) -> Option<Duration> {
        let attempts = self.attempts.filter(|_| self.block_scope().is_some())?;
        Some(Duration::from_micros(self.decided_at.micros_until(attempts.block_ends_at())))
    }

    /// Whether the store failed, and nothing was counted instead (`redis::OnFailure::Allow` or
    /// `redis::OnFailure::Deny`).
    pub fn is_uncounted(&self) -> bool {
        self.decided_at.is_uncounted()
    }

    /// Returns the time until no spent unit counts any more, if no other call is made. For windows aligned to
    /// the epoch, it is the time until the current one ends. It is never shorter than
    /// [`retry_after`](Decision::retry_after).
    pub fn reset_after(&self) -> Duration {
        let resets_in_us = self.decided_at.micros_until(self.resets_at);
        Duration::from_micros(self.retry_after_us().map_or(resets_in_us, |wait_us| wait_us.max(resets_in_us)))
    }
}

/// The time of a decision, and whether a fallback made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecisionTime(u64);

impl DecisionTime {
    /// The bits of the time itself.
    const TIME: u64 = (1 << 61) - 1;
    /// Set if a fallback decided because the store failed.
    const SUBSTITUTE: u64 = 1 << 63;
    /// Set if nothing was counted.
    const UNCOUNTED: u64 = 1 << 62;
    /// Set if the long window of an abuse limit blocks.
    const LONG_BLOCK: u64 = 1 << 61;

    /// Returns the time `now`.
    pub const fn exactly(now: Timestamp) -> Self {
        Self(now.as_micros())
    }

    /// Returns the same time, for a decision of a fallback.
    #[cfg(feature = "_redis")]
    pub(crate) fn substitute(self) -> Self {
        Self(self.0 | Self::SUBSTITUTE)
    }

    /// Returns the same time, for a decision of a fallback that counts nothing.
    #[cfg(feature = "_redis")]
    pub(crate) fn uncounted(self) -> Self {
        Self(self.substitute().0 | Self::UNCOUNTED)
    }

    /// Returns the same time, for a block of the long window.
    pub(crate) fn in_long_block(self) -> Self {
        Self(self.0 | Self::LONG_BLOCK)
    }

    /// Returns `now` as the time of the decision, with the same block flag.
    #[cfg(feature = "_redis")]
    pub(crate) fn moved_to(self, now: Timestamp) -> Self {
        Self(Self::exactly(now).0 | self.0 & Self::LONG_BLOCK)
    }

    /// Returns the time, if the store decided.
    #[cfg(feature = "_redis")]
    pub(crate) fn moment(self) -> Option<Timestamp> {
        (!self.is_substitute() && !self.is_uncounted()).then(|| Timestamp::derived(self.0 & Self::TIME))
    }

    fn is_substitute(self) -> bool {
        self.0 & Self::SUBSTITUTE != 0
    }

    fn is_uncounted(self) -> bool {
        self.0 & Self::UNCOUNTED != 0
    }

    /// Returns the window that blocks, if one does.
    fn block_scope(self) -> BlockScope {
        if self.0 & Self::LONG_BLOCK != 0 { BlockScope::Long } else { BlockScope::Temp }
    }

    #[inline]
    fn micros_until(self, then: Timestamp) -> u64 {
        if self.is_uncounted() {
            return UNCOUNTED_RETRY_US;
        }
        then.as_micros().saturating_sub(self.0 & Self::TIME)
    }
}

/// The wait after a denial that is not based on a count. A store that failed may have recovered by then.
const UNCOUNTED_RETRY_US: u64 = 1_000_000;
