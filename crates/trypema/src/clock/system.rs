//! The system's clock: monotonic, and anchored to the wall clock when it is first read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use super::tsc::now as precise_time;
use super::{Clock, Timestamp, timer};
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
use kernel_time as precise_time;

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
        Timestamp(precise_time() >> FRACTION_BITS)
    }

    fn wake_at(&self, at: Timestamp, waker: &Waker) {
        timer::wake_at(at, waker.clone());
    }

    fn forget(&self, at: Timestamp, waker: &Waker) {
        timer::forget(at, waker);
    }
}

/// The number of bits below a microsecond in [`kernel_time`].
pub(super) const FRACTION_BITS: u32 = 10;

/// Returns the time since the epoch by the kernel's monotonic clock, in 1024ths of a microsecond.
#[inline]
pub(super) fn kernel_time() -> u64 {
    let monotonic = monotonic();
    let offset_us = match OFFSET_US.load(Ordering::Relaxed) {
        0 => anchor(monotonic),
        offset_us => offset_us,
    };
    monotonic + (offset_us << FRACTION_BITS)
}

/// The difference between the time since the epoch and monotonic time; 0 until it is first needed.
static OFFSET_US: AtomicU64 = AtomicU64::new(0);

/// Anchors monotonic time to the wall clock, once for the process.
#[cold]
fn anchor(monotonic: u64) -> u64 {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall_us = u64::try_from(wall.as_micros()).unwrap_or(0);
    let offset_us = wall_us.saturating_sub(monotonic >> FRACTION_BITS).max(1);
    // If several threads get here at once, the anchor of the first one is used.
    match OFFSET_US.compare_exchange(0, offset_us, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => offset_us,
        Err(first) => first,
    }
}

#[cfg(target_os = "linux")]
#[inline]
fn monotonic() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    ((time.tv_sec as u64 * 1_000_000) << FRACTION_BITS) + (time.tv_nsec as u64 * (1 << FRACTION_BITS)) / 1_000
}

#[cfg(not(target_os = "linux"))]
fn monotonic() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    let elapsed = START.get_or_init(Instant::now).elapsed();
    u64::try_from((elapsed.as_nanos() << FRACTION_BITS) / 1_000).unwrap_or(u64::MAX)
}
