//! The limits of the suppressed strategy.

use std::time::Duration;

use crate::strategy::AbsoluteLimit;
use crate::units::{HardLimitFactor, RateGroupSizeMs, RateLimit, WindowSizeSeconds};

/// A soft limit, which is held on average, and a hard limit, which is never exceeded.
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
    /// Returns a limit with `rate` over `window` as the soft limit, and `factor` times that as the hard
    /// limit.
    #[inline]
    pub fn new(
        rate: RateLimit,
        window: WindowSizeSeconds,
        group: RateGroupSizeMs,
        factor: HardLimitFactor,
    ) -> Self {
        Self { window: AbsoluteLimit::new(rate, window, group), factor }
    }

    /// Returns a limit with `window` as the soft limit, and `factor` times that as the hard limit.
    #[inline]
    pub fn above(window: AbsoluteLimit, factor: HardLimitFactor) -> Self {
        Self { window, factor }
    }

    /// Returns the same limit, except that a live key keeps the soft limit it was first called with.
    #[must_use]
    pub fn sticky(self) -> Self {
        Self { window: self.window.sticky(), ..self }
    }

    /// Returns the soft limit: the units that are admitted without a draw.
    pub fn soft(&self) -> u64 {
        self.window.capacity
    }

    /// Returns the length of the window.
    pub fn window(&self) -> Duration {
        self.window.window()
    }

    /// Returns the hard limit: the units that are never exceeded.
    pub fn hard(&self) -> u64 {
        self.factor.hard_capacity(self.window.capacity)
    }
}
