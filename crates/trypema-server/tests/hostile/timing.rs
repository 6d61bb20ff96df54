//! Measuring time.

use std::time::{Duration, Instant};

/// A stopwatch that runs from its creation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "what is measured is the real time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        Self::start().0.saturating_duration_since(self.0)
    }
}

/// Returns the duration of `work`.
pub(crate) fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let watch = Stopwatch::start();
    work();
    watch.elapsed()
}

/// Returns the 99th percentile.
pub(crate) fn p99(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}
