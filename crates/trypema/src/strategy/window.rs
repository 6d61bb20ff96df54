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
}

/// A strategy whose limits are rates over a window.
pub trait WindowStrategy: Strategy {
    /// Returns the limit for `rate` over the window.
    fn limit(windows: &WindowOptions, rate: RateLimit) -> Self::Limit;
    /// Makes a limit sticky: the limit that a live key was first called with takes precedence over it.
    fn sticky(limit: Self::Limit) -> Self::Limit;
    /// Returns a limit that applies the limit stored with a live state. A key without a live state is not
    /// limited.
    fn of_live_state(windows: &WindowOptions) -> Self::Limit;
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
    fn limit(windows: &WindowOptions, rate: RateLimit) -> AbsoluteLimit {
        AbsoluteLimit::new(rate, windows.window, windows.group)
    }

    #[inline]
    fn sticky(limit: AbsoluteLimit) -> AbsoluteLimit {
        limit.sticky()
    }

    #[inline]
    fn of_live_state(windows: &WindowOptions) -> AbsoluteLimit {
        AbsoluteLimit::of_live_state(windows.window, windows.group)
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
    fn limit(windows: &WindowOptions, rate: RateLimit) -> SuppressedLimit {
        SuppressedLimit::new(rate, windows.window, windows.group, windows.factor)
    }

    #[inline]
    fn sticky(limit: SuppressedLimit) -> SuppressedLimit {
        limit.sticky()
    }

    #[inline]
    fn of_live_state(windows: &WindowOptions) -> SuppressedLimit {
        SuppressedLimit::of_live_state(windows.window, windows.group, windows.factor)
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
