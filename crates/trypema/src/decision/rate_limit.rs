//! The decision type of the trypema 1.x API.

use std::time::Duration;

use super::Decision;
use crate::units::WindowSizeSeconds;

/// The decision of `inc` and `is_allowed`.
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
        /// The length of the sliding window.
        window_size_seconds: u64,
        /// The time after which the same call would be admitted, if no other call is made;
        /// [`RateLimitDecision::NEVER_MS`] if the cost can never fit.
        retry_after_ms: u64,
        /// The units that still count after waiting, if no other call is made.
        remaining_after_waiting: u64,
    },
    /// The call is above the soft limit of the suppressed strategy, and a random draw decided it;
    /// `is_allowed` is the decision.
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

    /// Returns a denial, with the wait rounded up to milliseconds.
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

    /// Returns the time after which the same call would be admitted, if no other call is made. Returns `None`
    /// if there is no such time: the cost can never fit, or a draw denied the call (the caller may retry at
    /// any time).
    pub fn retry_after(&self) -> Option<Duration> {
        match *self {
            Self::Rejected { retry_after_ms: Self::NEVER_MS, .. } => None,
            Self::Rejected { retry_after_ms, .. } => Some(Duration::from_millis(retry_after_ms)),
            Self::Suppressed { is_allowed: false, .. } => None,
            Self::Allowed | Self::Suppressed { .. } => Some(Duration::ZERO),
        }
    }
}
