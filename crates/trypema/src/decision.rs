//! What a caller is told: one core decision, and the views of it that fit each strategy.

mod abuse;
mod rate_limit;
mod suppressed;
mod token_bucket;

use std::time::Duration;

pub use abuse::{AbuseDecision, Attempts, BlockScope, LimiterDecision};
pub use rate_limit::RateLimitDecision;
pub use suppressed::SuppressedDecision;
pub use token_bucket::{LimitBalance, TokenBucketDecision};

use crate::clock::{Clock, Span, SystemClock, Timestamp};

/// The answer to one call, whatever the strategy and the provider.
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
    /// Only of the abuse strategy.
    pub(crate) attempts: Option<Attempts>,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) not_before: Timestamp,
    pub(crate) resets_at: Timestamp,
    pub(crate) when: When,
}

/// The `not_before` of a cost that can never fit: later than every moment.
pub(crate) const NEVER: Timestamp = Timestamp::derived(u64::MAX);

impl Decision {
    /// A denial for good, by no count: also the place of a decision that is still to be made.
    pub(crate) fn refused() -> Self {
        let (not_before, resets_at) = (NEVER, Timestamp::default());
        Self {
            is_allowed: false,
            attempts: None,
            limit: 0,
            remaining: 0,
            not_before,
            resets_at,
            when: When::exactly(resets_at),
        }
    }

    /// Whether the call may go ahead.
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// What fits at most.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// What is left after this call.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// How long to wait before the same call is admitted if nobody else calls: zero when it was allowed, at
    /// least a microsecond when it was denied, `None` when its cost can never fit.
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
            Some(self.when.micros_until(self.not_before).max(1))
        }
    }

    /// Whether the cost is more than can ever fit.
    pub fn is_never(&self) -> bool {
        !self.is_allowed && self.not_before == NEVER
    }

    /// Whether the store could not be asked, and this is what was chosen for that case (see
    /// `redis::OnFailure`). Not a matter of the caller's: a server answers a denial of this kind with 503 and
    /// not with 429, unless it [never](Decision::is_never) fits.
    pub fn is_substitute(&self) -> bool {
        self.when.is_substitute()
    }

    /// The attempts that an abuse limit has counted; `None` for other strategies, and for what no count stands behind.
    pub fn attempts(&self) -> Option<Attempts> {
        self.attempts
    }

    /// Which window of an abuse limit blocks the key; `None` where none does, for other strategies, and for what was
    /// decided in place of a store that could not be asked.
    pub fn block_scope(&self) -> Option<BlockScope> {
        let is_blocked = !self.is_allowed && !self.is_never() && !self.is_substitute();
        self.attempts.filter(|_| is_blocked).map(|_| self.when.block_scope())
    }

    /// Whether the store could not be asked and nothing was counted in its place (`redis::OnFailure::Allow` or
    /// `redis::OnFailure::Deny`).
    pub fn is_uncounted(&self) -> bool {
        self.when.is_uncounted()
    }

    /// How long until nothing of what was spent counts any more (for windows aligned to the epoch: until the
    /// current one ends), if nobody else calls.
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.when.micros_until(self.resets_at))
    }
}

/// When a decision was made, and by whom.
///
/// Reading the precise time is the dearest part of a check, so a decision that did not need it reads it only
/// when it is asked for a wait; the wait then counts from being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct When(u64);

impl When {
    /// In place of a time: a moment ago by the system's clock.
    const RECENTLY: u64 = (1 << 61) - 1;
    /// Set where the store could not be asked.
    const SUBSTITUTE: u64 = 1 << 63;
    /// Set where nothing was counted at all.
    const UNCOUNTED: u64 = 1 << 62;
    /// Set where an abuse limit's long window blocks.
    const LONG_BLOCK: u64 = 1 << 61;

    /// At this moment.
    pub const fn exactly(now: Timestamp) -> Self {
        Self(now.as_micros())
    }

    /// Somewhere in `span`: a moment ago by the system's clock, unless it is a point.
    #[inline]
    pub(crate) fn in_span(span: Span) -> Self {
        if span.earliest == span.latest { Self::exactly(span.earliest) } else { Self(Self::RECENTLY) }
    }

    /// The same moment, decided in place of a store that could not be asked.
    #[cfg(feature = "_redis")]
    pub(crate) fn substitute(self) -> Self {
        Self(self.0 | Self::SUBSTITUTE)
    }

    /// The same, by a rule that counts nothing.
    #[cfg(feature = "_redis")]
    pub(crate) fn uncounted(self) -> Self {
        Self(self.substitute().0 | Self::UNCOUNTED)
    }

    /// The same moment, in a block by the long window.
    pub(crate) fn in_long_block(self) -> Self {
        Self(self.0 | Self::LONG_BLOCK)
    }

    /// Another moment, in the same block.
    #[cfg(feature = "_redis")]
    pub(crate) fn moved_to(self, now: Timestamp) -> Self {
        Self(Self::exactly(now).0 | self.0 & Self::LONG_BLOCK)
    }

    /// The moment, if it is known.
    #[cfg(feature = "_redis")]
    pub(crate) fn moment(self) -> Option<Timestamp> {
        let is_known =
            self.0 & (Self::SUBSTITUTE | Self::UNCOUNTED) == 0 && self.0 & Self::RECENTLY != Self::RECENTLY;
        is_known.then(|| Timestamp::derived(self.0 & Self::RECENTLY))
    }

    fn is_substitute(self) -> bool {
        self.0 & Self::SUBSTITUTE != 0
    }

    fn is_uncounted(self) -> bool {
        self.0 & Self::UNCOUNTED != 0
    }

    /// Which window of an abuse limit blocks, where one does.
    fn block_scope(self) -> BlockScope {
        if self.0 & Self::LONG_BLOCK != 0 { BlockScope::Long } else { BlockScope::Temp }
    }

    #[inline]
    fn micros_until(self, then: Timestamp) -> u64 {
        if self.is_uncounted() {
            return UNCOUNTED_RETRY_US;
        }
        let now = match self.0 & Self::RECENTLY {
            Self::RECENTLY => SystemClock.now().as_micros(),
            now => now,
        };
        then.as_micros().saturating_sub(now)
    }
}

/// When to try again after a denial that no count stands behind: a store that failed may be back by then.
const UNCOUNTED_RETRY_US: u64 = 1_000_000;
