//! The cost of leases: the units that they can leave unused.

use std::time::Duration;

use super::pace::Pace;

/// The worst-case effect of leases on a limit. They can leave a part of it unused, and never exceed it.
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
    /// The maximum time between two lease requests of an instance for a busy key. A remembered denial is
    /// also checked again within this time.
    pub interval: Duration,
    /// The length of a lease: the maximum time for which a unit is held unspent. A spent unit counts for at
    /// most this much longer than without leases.
    pub lease: Duration,
    /// The maximum share of the limit that is unused at any time. Instances hold at most the units that
    /// they expect to spend in one and a half intervals, and a spent unit counts longer than without
    /// leases, by up to the length of a lease.
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
