//! A journal of admissions, and checks whether a limit allows it.

use std::collections::BTreeMap;
use std::time::Duration;

use trypema::strategy::{Absolute, FixedWindow, SlidingWindow, Suppressed, TokenBucket};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Admitted {
    pub(crate) at_us: u64,
    pub(crate) units: u64,
}

/// Admissions in order of time.
#[derive(Debug, Default)]
pub(crate) struct Journal(pub(crate) Vec<Admitted>);

impl Journal {
    /// The largest number of units in any interval of this length.
    pub(crate) fn most_in(&self, window: Duration) -> u64 {
        let window_us = window.as_micros() as u64;
        let (mut first, mut sum, mut most) = (0, 0, 0);
        for last in &self.0 {
            sum += last.units;
            while self.0[first].at_us + window_us <= last.at_us {
                sum -= self.0[first].units;
                first += 1;
            }
            most = most.max(sum);
        }
        most
    }

    /// The units of each window, aligned to the epoch.
    fn per_window(&self, window: Duration) -> BTreeMap<u64, u64> {
        let mut windows = BTreeMap::new();
        for Admitted { at_us, units } in &self.0 {
            *windows.entry(at_us / window.as_micros() as u64).or_default() += units;
        }
        windows
    }
}

/// Checks a journal against a limit of `capacity` units per window. The error says what is exceeded.
pub(crate) trait Judge {
    fn judge(capacity: u64, window: Duration, journal: &Journal) -> Result<(), String>;
}

fn at_most(most: u64, what: &str, found: u64) -> Result<(), String> {
    if found <= most { Ok(()) } else { Err(format!("{found} of {most} {what}")) }
}

impl Judge for Absolute {
    fn judge(capacity: u64, window: Duration, journal: &Journal) -> Result<(), String> {
        at_most(capacity, "in a window", journal.most_in(window))
    }
}

/// Never above the hard limit, which is twice the soft limit by default.
impl Judge for Suppressed {
    fn judge(capacity: u64, window: Duration, journal: &Journal) -> Result<(), String> {
        at_most(2 * capacity, "in a window", journal.most_in(window))
    }
}

impl Judge for FixedWindow {
    fn judge(capacity: u64, window: Duration, journal: &Journal) -> Result<(), String> {
        at_most(capacity, "in a window", journal.per_window(window).into_values().max().unwrap_or(0))
    }
}

/// At each admission, the sliding window estimate over the actual admissions is within the limit.
impl Judge for SlidingWindow {
    fn judge(capacity: u64, window: Duration, journal: &Journal) -> Result<(), String> {
        let window_us = window.as_micros() as u64;
        let all = journal.per_window(window);
        let mut so_far = BTreeMap::<u64, u64>::new();
        for Admitted { at_us, units } in journal.0.iter().filter(|admitted| admitted.units > 0) {
            let (index, elapsed_us) = (at_us / window_us, at_us % window_us);
            let current = so_far.entry(index).or_default();
            *current += units;
            let previous = index.checked_sub(1).and_then(|before| all.get(&before)).copied().unwrap_or(0);
            let estimate = previous * (window_us - elapsed_us) + *current * window_us;
            at_most(capacity * window_us, "by the estimate, in unit-microseconds", estimate)?;
        }
        Ok(())
    }
}

/// Between any two admissions: at most the capacity plus the refill of that time.
impl Judge for TokenBucket {
    fn judge(capacity: u64, window: Duration, journal: &Journal) -> Result<(), String> {
        for (first, from) in journal.0.iter().enumerate() {
            let mut sum = 0;
            for to in &journal.0[first..] {
                sum += to.units;
                let came_in = capacity * (to.at_us - from.at_us) / window.as_micros() as u64;
                at_most(capacity + came_in, "between two calls", sum)?;
            }
        }
        Ok(())
    }
}
