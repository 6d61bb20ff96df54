//! Counts admitted and denied requests per millisecond.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The decision on a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Outcome {
    Admitted,
    Denied,
}

/// The requests of one strategy, per millisecond since the start of the run.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Admitted requests, by the time they were made.
    asked: Vec<AtomicU32>,
    /// Admitted requests, by the time they were decided.
    admitted: Vec<AtomicU32>,
    denied: Vec<AtomicU32>,
}

/// The requests in an interval.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
}

impl Tally {
    pub(crate) fn offered(self) -> u64 {
        self.admitted + self.denied
    }

    /// Converts counts over `span` to counts per second.
    pub(crate) fn per_second(self, span: Duration) -> Self {
        let rate = |count: u64| (count as f64 / span.as_secs_f64().max(0.001)).round() as u64;
        Self { admitted: rate(self.admitted), denied: rate(self.denied) }
    }
}

impl Ledger {
    /// Creates a ledger for a run of `seconds`, with one second of space for late requests.
    pub(crate) fn new(seconds: u64) -> Self {
        let milliseconds = seconds as usize * 1_000 + 1_000;
        let empty = || (0..milliseconds).map(|_| AtomicU32::new(0)).collect();
        Self { asked: empty(), admitted: empty(), denied: empty() }
    }

    pub(crate) fn record(&self, outcome: Outcome, before: Duration, after: Duration) {
        match outcome {
            Outcome::Admitted => {
                count(&self.asked, before);
                count(&self.admitted, after);
            }
            Outcome::Denied => count(&self.denied, after),
        }
    }

    /// Returns the requests decided from the start of `span` to before its end.
    pub(crate) fn tally(&self, span: Range<Duration>) -> Tally {
        let sum = |counts: &[AtomicU32]| {
            let (start, end) = (place(counts, span.start), place(counts, span.end));
            counts[start..end.max(start)].iter().map(load).sum()
        };
        Tally { admitted: sum(&self.admitted), denied: sum(&self.denied) }
    }

    pub(crate) fn total(&self) -> Tally {
        self.tally(Duration::ZERO..Duration::MAX)
    }

    /// Returns a lower bound on the most requests admitted in any interval as long as `window`, at a
    /// resolution of one millisecond.
    ///
    /// A request is decided at some time between its start and its end. So an interval certainly contains the
    /// requests that ended before its end, except those that started before its start.
    pub(crate) fn worst(&self, window: Duration) -> u64 {
        let length = window.as_millis() as usize;
        let (mut answered, mut made, mut worst) = (0_u64, 0_u64, 0);
        for (end, count) in self.admitted.iter().enumerate() {
            answered += load(count);
            if let Some(start) = end.checked_sub(length) {
                made += load(&self.asked[start]);
            }
            worst = worst.max(answered.saturating_sub(made));
        }
        worst
    }
}

fn count(counts: &[AtomicU32], at: Duration) {
    // A request that ends after the last millisecond of the ledger counts there.
    let last = counts.len() - 1;
    counts[place(counts, at).min(last)].fetch_add(1, Ordering::Relaxed);
}

fn place(counts: &[AtomicU32], at: Duration) -> usize {
    usize::try_from(at.as_millis()).map_or(counts.len(), |at| at.min(counts.len()))
}

fn load(count: &AtomicU32) -> u64 {
    u64::from(count.load(Ordering::Relaxed))
}
