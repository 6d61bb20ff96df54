//! How long things take.

use std::time::{Duration, Instant};

/// Runs from when it is made.
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

/// How long `work` takes.
pub(crate) fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let watch = Stopwatch::start();
    work();
    watch.elapsed()
}

/// What all but one in a hundred stay within.
pub(crate) fn p99(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}
