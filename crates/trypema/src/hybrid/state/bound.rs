//! What deciding here costs on the lower side.

use std::time::Duration;

use super::pace::Pace;

/// The worst that leases do to a limit, on its lower side; on the upper side they do nothing.
///
/// ```
/// use std::time::Duration;
/// use trypema::{AbsoluteLimit, RateLimiter};
///
/// let rl = RateLimiter::builder().build()?;
/// let bound = rl.hybrid().absolute().bound(&AbsoluteLimit::per_window(600, Duration::from_secs(60))?);
/// assert_eq!(bound.lease, Duration::from_micros(535_713));
/// assert!(bound.unused_share < 0.02);
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct HybridBound {
    /// How often an instance asks for a lease of a key; it also looks at least as often whether a denial still holds.
    pub interval: Duration,
    /// How long a unit is held, or counts after it was spent, at most.
    pub lease: Duration,
    /// The share of the limit that can be out of use at any time: as much is held unspent as is asked for in one and a half
    /// intervals, and what was spent counts for the length of a lease longer.
    pub unused_share: f64,
}

impl HybridBound {
    pub(in crate::hybrid) fn new(pace: Pace, window_us: u64) -> Self {
        Self {
            interval: Duration::from_micros(pace.interval_us),
            lease: Duration::from_micros(pace.length_us),
            unused_share: (pace.length_us as f64 + 1.5 * pace.interval_us as f64) / window_us.max(1) as f64,
        }
    }
}
