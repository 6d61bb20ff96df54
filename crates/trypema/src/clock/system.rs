//! The system's clock: monotonic, anchored to the wall clock once, when it is first read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Clock, Span, Timestamp, timer};

/// The time of the machine.
///
/// It only moves forward, at the rate of the monotonic clock: setting the machine's wall clock after the
/// first use does not disturb limits. Windows that are aligned to the epoch are aligned to the wall clock
/// as it was then.
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

/// What turns monotonic time into time since the epoch; 0 until it is first asked for.
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
    // Of several threads at once the first one's anchor holds.
    match OFFSET_US.compare_exchange(0, offset_us, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => offset_us,
        Err(first) => first,
    }
}

/// How far the recent time may lag behind the present; 0 once it may not be used, `UNKNOWN` at first.
static LAG_US: AtomicU64 = AtomicU64::new(UNKNOWN);
const UNKNOWN: u64 = u64::MAX;

/// A bound on the present that costs a fraction of reading the precise time.
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

/// If the recent time, read after it was precisely `now`, is seen to lag more than it may, only the precise
/// one is used from here on.
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

/// Linux keeps the time of the last timer tick: a fifth of the cost of the precise time, and on the same
/// scale.
#[cfg(target_os = "linux")]
mod coarse {
    use rustix::time::{ClockId, clock_getres, clock_gettime};

    /// The lag was seen to reach two ticks; twice that is trusted until it is seen to be broken.
    const TICKS: u64 = 4;

    /// With ticks longer than this the recent time would rarely decide anything.
    const LONGEST_TICK_US: u64 = 10_000;

    /// How far [`now_us`] may lag; 0 when it is of no use here.
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
                // A machine that lags more than it may is found out, and its recent time no longer used.
                check_recent(SystemClock.now());
                assert!(recent().latest >= before, "{span:?} ends before {before:?}");
            }
        }
    }
}
