//! Strategies whose limits are rates over a window, as in the trypema 1.x API.

use super::{Absolute, AbsoluteLimit, Strategy, Suppressed, SuppressedLimit};
use crate::decision::{Decision, RateLimitDecision, SuppressedDecision};
use crate::units::{HardLimitFactor, RateGroupSizeMs, RateLimit, WindowSizeSeconds};

/// The window and related settings of `inc`.
#[derive(Debug, Clone, Copy)]
pub struct WindowOptions {
    pub(crate) window: WindowSizeSeconds,
    pub(crate) group: RateGroupSizeMs,
    pub(crate) factor: HardLimitFactor,
}

impl WindowOptions {
    pub(crate) const DEFAULT: Self = Self {
        window: WindowSizeSeconds::DEFAULT,
        group: RateGroupSizeMs::DEFAULT,
        factor: HardLimitFactor::DEFAULT,
    };

    /// Returns the limit for `rate` over the window.
    #[inline]
    pub(crate) fn limit<S: WindowStrategy>(&self, rate: RateLimit) -> S::Limit {
        S::limit_above(AbsoluteLimit::new(rate, self.window, self.group), self.factor)
    }

    /// Returns the same limit, except that the limit that a live key was first called with takes precedence over it.
    #[inline]
    pub(crate) fn sticky_limit<S: WindowStrategy>(&self, rate: RateLimit) -> S::Limit {
        S::limit_above(AbsoluteLimit::new(rate, self.window, self.group).sticky(), self.factor)
    }

    /// Returns a limit that applies the limit stored with a live state. A key without a live state is not limited.
    #[inline]
    pub(crate) fn limit_of_live_state<S: WindowStrategy>(&self) -> S::Limit {
        S::limit_above(AbsoluteLimit::of_live_state(self.window, self.group), self.factor)
    }
}

/// A strategy whose limits are rates over a window.
pub trait WindowStrategy: Strategy {
    /// Returns the limit with this window, and this ratio of a hard limit to it, if the strategy has one.
    fn limit_above(window: AbsoluteLimit, factor: HardLimitFactor) -> Self::Limit;
    /// Returns the units that are still used after a denied caller has waited.
    fn used_after_wait(outcome: &Self::Outcome) -> u64;
    /// Converts the decision to the type of the trypema 1.x API.
    fn view(
        windows: &WindowOptions,
        decision: &Self::Decision<'_>,
        used_after_wait: u64,
    ) -> RateLimitDecision;
}

impl WindowStrategy for Absolute {
    #[inline]
    fn limit_above(window: AbsoluteLimit, _: HardLimitFactor) -> AbsoluteLimit {
        window
    }

    #[inline]
    fn used_after_wait(outcome: &Self::Outcome) -> u64 {
        outcome.used_after_wait()
    }

    #[inline]
    fn view(windows: &WindowOptions, decision: &Decision, used_after_wait: u64) -> RateLimitDecision {
        match decision.is_allowed() {
            true => RateLimitDecision::Allowed,
            false => RateLimitDecision::rejected(windows.window, decision, used_after_wait),
        }
    }
}

impl WindowStrategy for Suppressed {
    #[inline]
    fn limit_above(window: AbsoluteLimit, factor: HardLimitFactor) -> SuppressedLimit {
        SuppressedLimit::above(window, factor)
    }

    #[inline]
    fn used_after_wait(outcome: &Self::Outcome) -> u64 {
        outcome.used_after_wait()
    }

    #[inline]
    fn view(
        windows: &WindowOptions,
        decision: &SuppressedDecision,
        used_after_wait: u64,
    ) -> RateLimitDecision {
        let is_allowed = decision.is_allowed();
        match decision.suppression_factor() {
            Some(suppression_factor) => RateLimitDecision::Suppressed { suppression_factor, is_allowed },
            None => Absolute::view(windows, decision, used_after_wait),
        }
    }
}
