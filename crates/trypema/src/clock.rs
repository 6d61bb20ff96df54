//! The sources of time. No other module reads a clock.

mod manual;
mod system;
mod timer;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tsc;

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

pub use manual::ManualClock;
pub use system::SystemClock;

use crate::units::MAX_EXACT;

/// A point in time, in whole microseconds since the Unix epoch.
///
/// ```
/// use std::time::Duration;
/// use trypema::clock::Timestamp;
///
/// let start = Timestamp::from_micros(1_000_000);
/// assert_eq!((start + Duration::from_secs(2)).as_micros(), 3_000_000);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The last time that a clock can show, in the year 2250. The sum of this and any window or block is
    /// still exact.
    pub const MAX: Self = Self(MAX_EXACT - (1 << 47));

    /// Returns the time `micros` after the epoch, at most [`Timestamp::MAX`].
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 { Self::MAX } else { Self(micros) }
    }

    /// Returns a computed time, which may be later than any that a clock can show.
    pub(crate) const fn derived(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    /// Returns the sum, at most [`Timestamp::MAX`]. Fractions of a microsecond are dropped.
    fn add(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self::from_micros(self.0.saturating_add(micros))
    }
}

/// A source of time that replaces the system's clock in a limiter.
///
/// The time may stand still, jump forward or go back: limiters neither panic nor admit more because of it.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use trypema::{RateLimit, RateLimiter, clock::ManualClock};
///
/// let clock = Arc::new(ManualClock::default());
/// let rl = RateLimiter::builder().clock(clock.clone()).build()?;
/// let once_a_minute = RateLimit::try_from(1.0 / 60.0)?;
///
/// assert!(rl.local().absolute().inc("ann", &once_a_minute, 1).is_allowed());
/// assert!(!rl.local().absolute().inc("ann", &once_a_minute, 1).is_allowed());
/// clock.advance(Duration::from_secs(60));
/// assert!(rl.local().absolute().inc("ann", &once_a_minute, 1).is_allowed());
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
pub trait Clock: std::fmt::Debug + Send + Sync {
    /// Returns the current time. Limiters call this while a key is locked, so it must be quick, and must not
    /// call a limiter.
    fn now(&self) -> Timestamp;

    /// Wakes `waker` once the time is `at` or later. Waking it more often or too early does no harm.
    fn wake_at(&self, at: Timestamp, waker: &Waker);

    /// Cancels a wake-up that [`Clock::wake_at`] scheduled. Waking `waker` anyway does no harm.
    fn forget(&self, at: Timestamp, waker: &Waker) {
        let _ = (at, waker);
    }
}

/// The clock of a limiter. As an enum, the system's clock needs no indirection.
#[derive(Debug, Clone)]
pub(crate) enum ClockSource {
    System,
    Custom(Arc<dyn Clock>),
}

impl ClockSource {
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            ClockSource::System => SystemClock.now(),
            ClockSource::Custom(clock) => clock.now(),
        }
    }

    pub(crate) fn wake_at(&self, at: Timestamp, waker: &Waker) {
        match self {
            ClockSource::System => SystemClock.wake_at(at, waker),
            ClockSource::Custom(clock) => clock.wake_at(at, waker),
        }
    }

    pub(crate) fn forget(&self, at: Timestamp, waker: &Waker) {
        match self {
            ClockSource::System => SystemClock.forget(at, waker),
            ClockSource::Custom(clock) => clock.forget(at, waker),
        }
    }
}
