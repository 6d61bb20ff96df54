//! The suppressed strategy's additions to a decision.

use super::Decision;

/// A decision of the suppressed strategy. Derefs to [`Decision`].
///
/// ```
/// use trypema::{RateLimit, RateLimiter};
///
/// let rl = RateLimiter::builder().build()?;
/// let suppressed = rl.local().suppressed();
/// let decision = suppressed.take("ann", &suppressed.limit(&RateLimit::try_from(5.0)?), 1);
/// assert!(decision.is_allowed() && decision.suppression_factor().is_none());
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SuppressedDecision {
    pub(crate) core: Decision,
    pub(crate) factor: Option<f64>,
}

impl SuppressedDecision {
    /// Returns the share of calls that is denied, if a draw decided. Returns `None` below the soft limit and
    /// above the hard limit, where there is no draw.
    pub fn suppression_factor(&self) -> Option<f64> {
        self.factor
    }
}

impl std::ops::Deref for SuppressedDecision {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.core
    }
}
