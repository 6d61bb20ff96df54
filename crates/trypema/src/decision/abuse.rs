//! The abuse strategy's additions to a decision.

use std::time::Duration;

use super::Decision;
use crate::clock::Timestamp;

/// The window of an abuse limit that blocks a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockScope {
    /// The short window.
    Temp,
    /// The long window.
    Long,
}

impl BlockScope {
    /// Returns the name in logs, metrics and responses: `temp` or `long`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Temp => "temp",
            Self::Long => "long",
        }
    }
}

/// The attempts that an abuse limit has counted in each of its windows. The type is small, because every
/// [`Decision`] contains one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    short: u16,
    long: u16,
    /// The end of the block in force, in microseconds; 0 for none. As bytes, it needs no padding.
    block_ends_at: [u8; 8],
}

impl Attempts {
    /// Returns the counts. They fit: a limit keeps at most as many attempts as its larger threshold, which is
    /// far below `u16::MAX`.
    pub(crate) fn new(short_count: u64, long_count: u64, block_ends_at: Timestamp) -> Self {
        let count = |count: u64| u16::try_from(count).unwrap_or(u16::MAX);
        let block_ends_at = block_ends_at.as_micros().to_ne_bytes();
        Self { short: count(short_count), long: count(long_count), block_ends_at }
    }

    pub(super) fn block_ends_at(self) -> Timestamp {
        Timestamp::derived(u64::from_ne_bytes(self.block_ends_at))
    }

    /// Returns the attempts in the short window, including this one if it counted.
    pub fn short_count(self) -> u64 {
        u64::from(self.short)
    }

    /// Returns the attempts in the long window, including this one if it counted.
    pub fn long_count(self) -> u64 {
        u64::from(self.long)
    }
}

/// The decision on one attempt: allowed, or blocked with the details of the block.
///
/// ```
/// use trypema::{BlockScope, LimiterDecision};
///
/// let decision =
///     LimiterDecision::Blocked { scope: BlockScope::Temp, retry_after_secs: 600, short_count: 3, long_count: 3 };
/// assert!(!decision.is_allowed());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimiterDecision {
    /// The attempt may go ahead.
    Allowed,
    /// The attempt is blocked.
    Blocked {
        /// The window that blocked.
        scope: BlockScope,
        /// The seconds, rounded up, until this attempt would be allowed; `u64::MAX` for never.
        retry_after_secs: u64,
        /// The attempts in the short window, including this one if it counted.
        short_count: u64,
        /// The attempts in the long window, including this one if it counted.
        long_count: u64,
    },
}

impl LimiterDecision {
    /// Whether the attempt may go ahead.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed)
    }
}

/// A decision of the abuse strategy. Derefs to [`Decision`].
///
/// ```
/// use std::time::Duration;
/// use trypema::{AbuseLimit, AbuseTier, BlockScope, RateLimiter};
///
/// let rl = RateLimiter::builder().build()?;
/// let limit = AbuseLimit::new(
///     AbuseTier::new(Duration::from_secs(60), 3, Duration::from_secs(600))?,
///     AbuseTier::new(Duration::from_secs(3600), 10, Duration::from_secs(86_400))?,
/// );
/// let abuse = rl.local().abuse();
/// assert!(abuse.take("ann", &limit, 1).is_allowed());
/// assert!(abuse.take("ann", &limit, 1).is_allowed());
/// let blocked = abuse.take("ann", &limit, 1);
/// assert_eq!((blocked.scope(), blocked.short_count()), (Some(BlockScope::Temp), 3));
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AbuseDecision {
    pub(crate) core: Decision,
    pub(crate) scope: Option<BlockScope>,
    pub(crate) block_ends_at: Timestamp,
    pub(crate) short_count: u64,
    pub(crate) long_count: u64,
}

impl AbuseDecision {
    /// Returns the window that blocked, or `None` if the attempt was allowed.
    pub fn scope(&self) -> Option<BlockScope> {
        self.scope
    }

    /// Returns the time until the block in force ends. [`Decision::retry_after`] may be longer: it is the
    /// time after which this attempt would not be blocked again.
    pub fn block_ends_after(&self) -> Duration {
        Duration::from_micros(self.core.decided_at.micros_until(self.block_ends_at))
    }

    /// Returns the attempts in the short window.
    pub fn short_count(&self) -> u64 {
        self.short_count
    }

    /// Returns the attempts in the long window.
    pub fn long_count(&self) -> u64 {
        self.long_count
    }
}

impl From<&AbuseDecision> for LimiterDecision {
    fn from(decision: &AbuseDecision) -> Self {
        match decision.scope {
            None => Self::Allowed,
            Some(scope) => Self::Blocked {
                scope,
                retry_after_secs: decision
                    .core
                    .retry_after_us()
                    .map_or(u64::MAX, |us| us.div_ceil(1_000_000)),
                short_count: decision.short_count,
                long_count: decision.long_count,
            },
        }
    }
}

impl std::ops::Deref for AbuseDecision {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.core
    }
}
