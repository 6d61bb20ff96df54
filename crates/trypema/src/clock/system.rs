//! The system's clock: monotonic, and anchored to the wall clock when it is first read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Clock, Span, Timestamp, timer};

/// The clock of the machine.
///
/// It only moves forward, at the rate of the monotonic clock. Setting the wall clock of the machine after the
/// first use does not affect limits. Windows that are aligned to the epoch are aligned to the wall clock at
/// the time of the first use.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp(precise_us() + offset_us())
    }

    fn wake_at(&self, at: Timestamp, waker: &Waker) {
        timer::wake_at(at, waker.clone());
    }

    fn forget(&self, at: Timestamp, waker: &Waker) {
        timer::forget(at, waker);
    }
}

/// The difference between the time since the epoch and monotonic time; 0 until it is first needed.
static OFFSET_US: AtomicU64 = AtomicU64::new(0);

#[inline]
fn offset_us() -> u64 {
    match OFFSET_US.load(Ordering::Relaxed) {
        0 => anchor(),
        offset_us => offset_us,
    }
}

/// Anchors monotonic time to the wall clock, once for the process.
#[cold]
fn anchor() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall_us = u64::try_from(wall.as_micros()).unwrap_or(0);
    let offset_us = wall_us.saturating_sub(precise_us()).max(1);
    // If several threads get here at once, the anchor of the first one is used.
    match OFFSET_US.compare_exchange(0, offset_us, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => offset_us,
        Err(first) => first,
    }
}

/// The largest lag of the coarse clock behind the present; 0 if it must not be used, `UNKNOWN` at first.
static LAG_US: AtomicU64 = AtomicU64::new(UNKNOWN);
const UNKNOWN: u64 = u64::MAX;

/// Returns a bound on the present, at a fraction of the cost of the precise time.
#[inline(always)]
pub(super) fn recent() -> Span {
    match LAG_US.load(Ordering::Relaxed) {
        0 => Span::at(SystemClock.now()),
        UNKNOWN => {
            LAG_US.store(coarse::lag_us(), Ordering::Relaxed);
            Span::at(SystemClock.now())
        }
        lag_us => {
            let earliest = coarse::now_us() + offset_us();
            Span { earliest: Timestamp(earliest), latest: Timestamp(earliest + lag_us) }
        }
    }
}

/// Stops using the coarse clock if it lags more than assumed. `now` is a precise time that was read before.
#[cold]
pub(super) fn check_recent(now: Timestamp) {
    if recent().latest < now {
        LAG_US.store(0, Ordering::Relaxed);
    }
}

#[cfg(target_os = "linux")]
#[inline]
fn precise_us() -> u64 {
    coarse::read_us(rustix::time::ClockId::Monotonic)
}

#[cfg(not(target_os = "linux"))]
fn precise_us() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    let elapsed = START.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

/// The coarse clock: Linux keeps the time of the last timer tick, which is on the same scale as the precise
/// time and costs a fifth of it.
#[cfg(target_os = "linux")]
mod coarse {
    use rustix::time::{ClockId, clock_getres, clock_gettime};

    /// The assumed lag, in ticks. The largest one observed was two ticks. Twice that is trusted until a
    /// larger one is observed.
    const TICKS: u64 = 4;

    /// The longest tick with which the coarse clock is used. With longer ones, it would rarely decide
    /// anything.
    const LONGEST_TICK_US: u64 = 10_000;

    /// Returns the largest lag of [`now_us`]; 0 if the coarse clock is of no use here.
    pub(super) fn lag_us() -> u64 {
        let resolution = clock_getres(ClockId::MonotonicCoarse);
        let tick_us = (resolution.tv_nsec as u64).div_ceil(1_000);
        if resolution.tv_sec == 0 && tick_us <= LONGEST_TICK_US { tick_us * TICKS } else { 0 }
    }

    #[inline]
    pub(super) fn now_us() -> u64 {
        read_us(ClockId::MonotonicCoarse)
    }

    #[inline]
    pub(super) fn read_us(id: ClockId) -> u64 {
        let time = clock_gettime(id);
        time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
    }
}

#[cfg(not(target_os = "linux"))]
mod coarse {
    pub(super) fn lag_us() -> u64 {
        0
    }

    pub(super) fn now_us() -> u64 {
        super::precise_us()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_lies_in_the_recent_span() {
        recent();
        for _ in 0..10_000 {
            let before = SystemClock.now();
            let span = recent();
            let after = SystemClock.now();
            assert!(span.earliest <= after, "{span:?} starts after {after:?}");
            if span.latest < before {
                // A lag that is larger than assumed is detected, and the coarse clock is no longer used.
                check_recent(SystemClock.now());
                assert!(recent().latest >= before, "{span:?} ends before {before:?}");
            }
        }
    }
}
