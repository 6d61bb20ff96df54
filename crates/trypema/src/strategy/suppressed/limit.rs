//! The limits of the suppressed strategy.

use std::time::Duration;

use crate::strategy::AbsoluteLimit;
use crate::units::{HardLimitFactor, RateGroupSizeMs, RateLimit, WindowSizeSeconds};

/// A limit to hold on average, and one never to pass.
///
/// ```
/// use trypema::{HardLimitFactor, RateGroupSizeMs, RateLimit, SuppressedLimit, WindowSizeSeconds};
///
/// let limit = SuppressedLimit::new(
///     RateLimit::try_from(5.0)?,
///     WindowSizeSeconds::try_from(10)?,
///     RateGroupSizeMs::try_from(10)?,
///     HardLimitFactor::default(),
/// );
/// assert_eq!((limit.soft(), limit.hard()), (50, 100));
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SuppressedLimit {
    pub(super) window: AbsoluteLimit,
    pub(super) factor: HardLimitFactor,
}

impl SuppressedLimit {
    /// `rate` over `window` as the limit to hold, and `factor` times that as the one never to pass.
    #[inline]
    pub fn new(
        rate: RateLimit,
        window: WindowSizeSeconds,
        group: RateGroupSizeMs,
        factor: HardLimitFactor,
    ) -> Self {
        Self { window: AbsoluteLimit::new(rate, window, group), factor }
    }

    /// `window` as the limit to hold, and `factor` times that as the one never to pass.
    pub fn above(window: AbsoluteLimit, factor: HardLimitFactor) -> Self {
        Self { window, factor }
    }

    /// The same limit, giving way to the one that a live key was first called with.
    #[must_use]
    pub fn sticky(self) -> Self {
        Self { window: self.window.sticky(), ..self }
    }

    /// The limit of a live state, whatever it is; without one, none.
    pub(crate) fn of_live_state(
        window: WindowSizeSeconds,
        group: RateGroupSizeMs,
        factor: HardLimitFactor,
    ) -> Self {
        Self { window: AbsoluteLimit::of_live_state(window, group), factor }
    }

    /// What is admitted without a draw.
    pub fn soft(&self) -> u64 {
        self.window.capacity
    }

    /// The window's length.
    pub fn window(&self) -> Duration {
        self.window.window()
    }

    /// What is never passed.
    pub fn hard(&self) -> u64 {
        self.factor.hard_capacity(self.window.capacity)
    }
}
