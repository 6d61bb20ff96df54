//! The decision type of the seeds' API.

use std::time::Duration;

use super::Decision;
use crate::units::WindowSizeSeconds;

/// The answer of `inc` and `is_allowed`.
///
/// ```
/// use trypema::RateLimitDecision;
///
/// let decision = RateLimitDecision::Rejected {
///     window_size_seconds: 60,
///     retry_after_ms: 2_500,
///     remaining_after_waiting: 45,
/// };
/// assert!(!decision.is_allowed());
/// assert_eq!(decision.retry_after().unwrap().as_millis(), 2_500);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RateLimitDecision {
    /// The call is admitted and recorded.
    Allowed,
    /// The call is denied and not recorded.
    Rejected {
        /// The sliding window's length.
        window_size_seconds: u64,
        /// How long to wait before the same call is admitted if nobody else calls;
        /// [`RateLimitDecision::NEVER_MS`] when its cost can never fit.
        retry_after_ms: u64,
        /// What is still used in the window after waiting, if nobody else calls.
        remaining_after_waiting: u64,
    },
    /// The suppressed strategy is shedding load; `is_allowed` is the answer for this call.
    Suppressed {
        /// The share of calls that is denied, from 0 to 1.
        suppression_factor: f64,
        /// Whether this call is admitted.
        is_allowed: bool,
    },
}

impl RateLimitDecision {
    /// The `retry_after_ms` of a cost that can never fit.
    pub const NEVER_MS: u64 = u64::MAX;

    /// A denial, its wait rounded up to milliseconds.
    #[inline(always)]
    pub(crate) fn rejected(window: WindowSizeSeconds, decision: &Decision, used_after_wait: u64) -> Self {
        Self::Rejected {
            window_size_seconds: *window,
            retry_after_ms: decision.retry_after_us().map_or(Self::NEVER_MS, |us| us.div_ceil(1_000)),
            remaining_after_waiting: used_after_wait,
        }
    }

    /// Whether the call may go ahead.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed | Self::Suppressed { is_allowed: true, .. })
    }

    /// How long to wait before the same call is admitted if nobody else calls. `None` where no wait can be
    /// named: the cost can never fit, or the call was suppressed (try again at any time).
    pub fn retry_after(&self) -> Option<Duration> {
        match *self {
            Self::Rejected { retry_after_ms: Self::NEVER_MS, .. } => None,
            Self::Rejected { retry_after_ms, .. } => Some(Duration::from_millis(retry_after_ms)),
            Self::Suppressed { is_allowed: false, .. } => None,
            Self::Allowed | Self::Suppressed { .. } => Some(Duration::ZERO),
        }
    }
}
