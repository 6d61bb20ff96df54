//! The time-stamp counter of the processor, between readings of the kernel's clock.
//!
//! Reading the counter takes half as long as asking the kernel. So a caller asks the kernel only if nobody has for
//! [`PERIOD`], and *anchors* a line there: the kernel's time, and the rate at which the counter ran against it since
//! the last anchor, less a thousandth. Until the period is over, the time is that of the line.
//!
//! - The line stays within its period, whatever the counter does. It falls behind the kernel's clock by a thousandth
//!   of the period, and each line begins at or after the end of the last one. So the time never goes back.
//! - The counter is used only if it is the kernel's own clock source. If its rate changes by more than an eighth from
//!   one anchor to the next, it is not used again.

use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use super::system::kernel_time;
use crate::low_level::time_stamp;

/// The ticks for which a line is used: 0.4 to 2 ms, at 5 to 1 GHz.
const PERIOD: u64 = 1 << 21;

/// The longest reading of the kernel's clock, in ticks, that becomes an anchor. A thread may be suspended between
/// reading the clock and reading the counter.
const LONGEST_READING: u64 = 1 << 12;

/// How often the kernel's clock is read to find a quick reading.
const TRIES: usize = 4;

/// The number of bits by which rates are scaled.
const RATE_BITS: u32 = 32;

/// The rate of a counter of 4 MHz. Below a lower rate than this, the products of ticks and rates fit into a word.
const MAX_RATE: u64 = 1 << 40;

/// The part by which a line is slower than the counter: more than the kernel's clock changes its rate, except after
/// it was set wrong.
const SLOWER_BY: u64 = 1 << 10;

/// The line that gives the time. All callers read it, and it changes rarely, so it has a cache line of its own.
#[repr(align(64))]
struct Line {
    /// The ticks at which the line begins; 0 while there is no line.
    starts: AtomicU64,
    /// The time at which the line begins.
    at: AtomicU64,
    /// The time that passes in a tick.
    rate: AtomicU64,
}

static LINE: Line = Line { starts: AtomicU64::new(0), at: AtomicU64::new(0), rate: AtomicU64::new(0) };

static ANCHORS: Mutex<Anchors> = Mutex::new(Anchors { last: None, rate: 0, end: 0 });

/// 0 as long as the counter may be used. After that, the end of the last line, before which no time is returned.
static WITHOUT_COUNTER_SINCE: AtomicU64 = AtomicU64::new(0);

/// Returns the time, from the line if possible, on the scale of [`kernel_time`].
#[inline(always)]
pub(super) fn now() -> u64 {
    LINE.now().unwrap_or_else(anchor)
}

impl Line {
    #[inline(always)]
    fn now(&self) -> Option<u64> {
        let starts = self.starts.load(Ordering::Acquire);
        let at = self.at.load(Ordering::Acquire);
        let rate = self.rate.load(Ordering::Acquire);
        if starts == 0 {
            return None;
        }
        let ticks = time_stamp().wrapping_sub(starts);
        // A thread that replaces the line clears its start first.
        let is_whole = self.starts.load(Ordering::Relaxed) == starts;
        (ticks < PERIOD && is_whole).then(|| at + ((ticks * rate) >> RATE_BITS))
    }

    /// Replaces the line. The caller holds [`ANCHORS`].
    fn replace(&self, with: Option<Segment>) {
        self.starts.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        if let Some(Segment { starts, at, rate }) = with {
            self.at.store(at, Ordering::Relaxed);
            self.rate.store(rate, Ordering::Relaxed);
            self.starts.store(starts, Ordering::Release);
        }
    }
}

/// Reads the kernel's clock, and anchors a new line there.
#[cold]
#[inline(never)]
fn anchor() -> u64 {
    let since = WITHOUT_COUNTER_SINCE.load(Ordering::Relaxed);
    if since > 0 {
        return kernel_time().max(since);
    }
    let mut anchors = ANCHORS.lock().unwrap_or_else(PoisonError::into_inner);
    // Another thread may have anchored while this one waited.
    if let Some(now) = LINE.now() {
        return now;
    }
    let next = match Reading::new() {
        _ if anchors.last.is_none() && !is_clock_source() => Next::Distrust,
        Some(reading) => anchors.next(reading),
        None => Next::Wait,
    };
    match next {
        Next::Wait => {}
        Next::Line(line) => LINE.replace(Some(line)),
        Next::Distrust => {
            LINE.replace(None);
            WITHOUT_COUNTER_SINCE.store(anchors.end.max(1), Ordering::Relaxed);
        }
    }
    match next {
        Next::Line(line) => line.at,
        Next::Wait | Next::Distrust => kernel_time().max(anchors.end),
    }
}

/// The kernel's time, and the counter just after it was read.
#[derive(Debug, Clone, Copy)]
struct Reading {
    time: u64,
    ticks: u64,
}

impl Reading {
    /// Reads both. Returns `None` if no reading was quick.
    fn new() -> Option<Self> {
        let read = || {
            let before = time_stamp();
            let time = kernel_time();
            let ticks = time_stamp();
            (ticks.wrapping_sub(before) <= LONGEST_READING).then_some(Self { time, ticks })
        };
        (0..TRIES).find_map(|_| read())
    }
}

/// The time of one period.
#[derive(Debug, Clone, Copy)]
struct Segment {
    starts: u64,
    at: u64,
    rate: u64,
}

/// What follows from a reading of the kernel's clock.
enum Next {
    /// The rate of the counter is not known yet.
    Wait,
    Line(Segment),
    /// The counter does not run evenly.
    Distrust,
}

struct Anchors {
    last: Option<Reading>,
    /// The rate between the last two anchors; 0 if there were none.
    rate: u64,
    /// The end of the last line.
    end: u64,
}

impl Anchors {
    fn next(&mut self, reading: Reading) -> Next {
        let Some(last) = self.last else {
            self.last = Some(reading);
            return Next::Wait;
        };
        let ticks = reading.ticks.wrapping_sub(last.ticks);
        if ticks < PERIOD {
            return Next::Wait;
        }
        let passed = u128::from(reading.time.saturating_sub(last.time));
        let rate = u64::try_from((passed << RATE_BITS) / u128::from(ticks)).unwrap_or(u64::MAX);
        let is_even = self.rate == 0 || rate.abs_diff(self.rate) <= self.rate / 8;
        if rate == 0 || rate >= MAX_RATE || !is_even {
            return Next::Distrust;
        }
        (self.last, self.rate) = (Some(reading), rate);
        let (at, rate) = (reading.time.max(self.end), rate - rate / SLOWER_BY);
        self.end = at + ((PERIOD * rate) >> RATE_BITS);
        Next::Line(Segment { starts: reading.ticks, at, rate })
    }
}

/// Whether the kernel's own clock is this counter, and the processor promises that it always runs at one rate.
fn is_clock_source() -> bool {
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    // The flags of the first processor. The kernel computes the rest of the file, which may be long, only when read.
    let mut processor = Vec::new();
    let read = File::open("/proc/cpuinfo").and_then(|file| file.take(4_096).read_to_end(&mut processor));
    let processor = String::from_utf8_lossy(&processor);
    let has = |flag| processor.split_ascii_whitespace().any(|word| word == flag);
    source.is_ok_and(|source| source.trim() == "tsc")
        && read.is_ok()
        && has("constant_tsc")
        && has("nonstop_tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel's clock and a counter, both moved by the test.
    struct Machine {
        anchors: Anchors,
        line: Option<Segment>,
        is_distrusted: bool,
        time: u64,
        ticks: u64,
    }

    impl Machine {
        fn new() -> Self {
            let anchors = Anchors { last: None, rate: 0, end: 0 };
            Self { anchors, line: None, is_distrusted: false, time: 1 << 50, ticks: 1 << 40 }
        }

        /// Returns the time that a caller gets.
        fn now(&mut self) -> u64 {
            let within = |line: Segment| self.ticks.wrapping_sub(line.starts);
            if let Some(line) = self.line.filter(|line| within(*line) < PERIOD) {
                return line.at + ((within(line) * line.rate) >> RATE_BITS);
            }
            let kernel = self.time.max(self.anchors.end);
            if self.is_distrusted {
                return kernel;
            }
            match self.anchors.next(Reading { time: self.time, ticks: self.ticks }) {
                Next::Wait => kernel,
                Next::Line(line) => {
                    self.line = Some(line);
                    line.at
                }
                Next::Distrust => {
                    (self.line, self.is_distrusted) = (None, true);
                    kernel
                }
            }
        }

        /// Moves both by `ticks`, of which `per_tick` thousandths pass on the kernel's clock.
        fn run(&mut self, ticks: u64, per_tick: u64) {
            self.ticks = self.ticks.wrapping_add(ticks);
            self.time += ticks * per_tick / 1_000;
        }

        fn is_counting(&self) -> bool {
            self.line.is_some()
        }
    }

    fn counting() -> Machine {
        let mut machine = Machine::new();
        (0..100).for_each(|_| {
            machine.run(PERIOD / 8, 400);
            machine.now();
        });
        assert!(machine.is_counting());
        machine
    }

    #[test]
    fn the_time_follows_the_kernels() {
        let mut machine = counting();
        for step in 0..100_000 {
            // Callers of all frequencies. At times the kernel's clock changes its rate by 0.25 %.
            machine.run(1 << (step % 25), 400 + step / 1_000 % 2);
            let (now, kernel) = (machine.now(), machine.time);
            assert!(now.abs_diff(kernel) <= PERIOD / 500, "{now} at {kernel}");
        }
        assert!(machine.is_counting());
    }

    /// The counter jumps forward or starts again, and the kernel's clock jumps forward.
    #[test]
    fn the_time_neither_goes_back_nor_runs_ahead_by_a_period() {
        let mut random = 1_u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut distrusted = 0;
        for _ in 0..2_000 {
            let (mut machine, mut last) = (counting(), 0);
            for _ in 0..200 {
                machine.run(1 << draw(26), 390 + draw(20));
                match draw(500) {
                    0 => machine.ticks += draw(2 * PERIOD),
                    1 => machine.ticks = draw(1 << 30),
                    2 => machine.time += draw(PERIOD),
                    _ => {}
                }
                let now = machine.now();
                assert!(now >= last, "{now} after {last}");
                assert!(now <= machine.time + PERIOD / 2, "{now} at {}", machine.time);
                last = now;
            }
            distrusted += u32::from(machine.is_distrusted);
        }
        assert!(distrusted > 100);
    }

    #[test]
    fn an_uneven_counter_is_not_used_again() {
        for (ticks, per_tick) in [(PERIOD, 800), (PERIOD, 200), (2 * PERIOD, 0)] {
            let mut machine = counting();
            machine.run(ticks, per_tick);
            machine.now();
            assert!(!machine.is_counting());
            machine.run(10 * PERIOD, 400);
            assert!(!machine.is_counting());
            assert_eq!(machine.now(), machine.time);
        }
        let mut machine = counting();
        machine.ticks = 0;
        machine.now();
        assert!(!machine.is_counting(), "a counter that starts again");
    }

    /// Threads that read the time at once, beside the kernel's clock.
    #[test]
    fn threads_see_one_time_that_never_goes_back() {
        let latest = AtomicU64::new(0);
        let deadline = kernel_time() + (50_000 << super::super::system::FRACTION_BITS);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while kernel_time() < deadline {
                        let before = (latest.load(Ordering::SeqCst), kernel_time());
                        let now = now();
                        let after = kernel_time();
                        latest.fetch_max(now, Ordering::SeqCst);
                        let slack = 20 << super::super::system::FRACTION_BITS;
                        assert!(now >= before.0, "{now} after {}", before.0);
                        assert!(
                            now + slack >= before.1 && now <= after + slack,
                            "{now}, not {before:?} to {after}"
                        );
                    }
                });
            }
        });
    }
}
