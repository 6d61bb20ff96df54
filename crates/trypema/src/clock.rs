//! Where time comes from. Nothing else in the crate reads a clock.

mod manual;
mod system;
mod timer;

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

pub use manual::ManualClock;
pub use system::SystemClock;

use crate::units::MAX_EXACT;

/// A moment, in whole microseconds since the Unix epoch.
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
    /// The last moment a clock can show (in the year 2250): whatever is added to it, windows and blocks, is
    /// still counted exactly.
    pub const MAX: Self = Self(MAX_EXACT - (1 << 47));

    /// The moment `micros` after the epoch; later ones than [`Timestamp::MAX`] become it.
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 { Self::MAX } else { Self(micros) }
    }

    /// A moment that was worked out from others, and may lie after all that a clock can show.
    pub(crate) const fn derived(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    /// Fractions of a microsecond are dropped; the sum stops at [`Timestamp::MAX`].
    fn add(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self::from_micros(self.0.saturating_add(micros))
    }
}

/// A source of time that a limiter can be given in place of the system's.
///
/// Time may stand still, leap or go back: limiters neither panic nor admit more because of it.
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
    /// What time it is. Asked while a key is locked: it must be quick, and must not call a limiter.
    fn now(&self) -> Timestamp;

    /// Wakes `waker` once the time is `at` or later. Waking more often or too early does no harm.
    fn wake_at(&self, at: Timestamp, waker: &Waker);

    /// `waker` need no longer be woken at `at`. Waking it all the same does no harm.
    fn forget(&self, at: Timestamp, waker: &Waker) {
        let _ = (at, waker);
    }
}

/// A stretch of time that the present lies in; a point where the clock is precise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The present is not before this.
    pub earliest: Timestamp,
    /// The present is not after this.
    pub latest: Timestamp,
}

impl Span {
    /// The span that is one moment.
    pub const fn at(now: Timestamp) -> Self {
        Self { earliest: now, latest: now }
    }
}

/// The clock a limiter holds; an enum, so that the usual one costs no indirection.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    System,
    Custom(Arc<dyn Clock>),
}

impl Source {
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Source::System => SystemClock.now(),
            Source::Custom(clock) => clock.now(),
        }
    }

    /// A cheap bound on the present.
    #[inline(always)]
    pub(crate) fn recent(&self) -> Span {
        match self {
            Source::System => system::recent(),
            Source::Custom(clock) => Span::at(clock.now()),
        }
    }

    /// The precise time, after `span` turned out to be too wide to decide.
    #[inline]
    pub(crate) fn narrow(&self, span: Span) -> Timestamp {
        if span.earliest == span.latest {
            return span.earliest;
        }
        let now = self.now();
        if now > span.latest {
            // Either this thread was held up in between, or the bound on the lag does not hold here.
            system::check_recent(now);
        }
        now
    }

    pub(crate) fn wake_at(&self, at: Timestamp, waker: &Waker) {
        match self {
            Source::System => SystemClock.wake_at(at, waker),
            Source::Custom(clock) => clock.wake_at(at, waker),
        }
    }

    pub(crate) fn forget(&self, at: Timestamp, waker: &Waker) {
        match self {
            Source::System => SystemClock.forget(at, waker),
            Source::Custom(clock) => clock.forget(at, waker),
        }
    }
}
