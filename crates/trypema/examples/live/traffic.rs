//! Generates traffic in real time with several threads.

use std::time::Duration;

use trypema::clock::{Clock, SystemClock, Timestamp};

use crate::arguments::Plan;
use crate::ledger::Ledger;
use crate::strategy_run::StrategyRun;

/// Enough threads for contention on the key, and few enough for a laptop.
pub(crate) const WORKERS: u32 = 4;

/// The interval at which a worker sends the requests that are due.
const PAUSE: Duration = Duration::from_millis(1);

/// The most requests of one worker per pause. A worker that falls behind drops the rest instead of sending a
/// burst.
const MAX_CALLS_PER_PAUSE: f64 = 20_000.0;

/// The offered load over time, as a multiple of the limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Load {
    Waves,
    Steady,
    Bursts,
    Ramp,
}

impl Load {
    pub(crate) const ALL: [Self; 4] = [Self::Waves, Self::Steady, Self::Bursts, Self::Ramp];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Waves => "waves",
            Self::Steady => "steady",
            Self::Bursts => "bursts",
            Self::Ramp => "ramp",
        }
    }

    /// Returns the highest load.
    pub(crate) fn peak(self) -> f64 {
        match self {
            Self::Waves => 3.0,
            Self::Steady => 2.0,
            Self::Bursts => 8.0,
            Self::Ramp => 4.0,
        }
    }

    /// Returns the load `at` seconds into a run of `whole` seconds.
    fn at(self, at: f64, whole: f64) -> f64 {
        match self {
            Self::Waves => match at % 10.0 {
                calm if calm < 2.0 => 0.5,
                flood if flood < 6.0 => 3.0,
                silence if silence < 7.5 => 0.0,
                _ => 1.3,
            },
            Self::Steady => 2.0,
            Self::Bursts => match at % 2.5 {
                spike if spike < 0.25 => 8.0,
                _ => 0.2,
            },
            Self::Ramp => 4.0 * at / whole,
        }
    }
}

/// The time frame and the load of a run.
#[derive(Debug)]
pub(crate) struct Run {
    starts_at: Timestamp,
    seconds: u64,
    load: Load,
    /// The limit, per second.
    allowed: f64,
}

impl Run {
    pub(crate) fn starting_now(plan: &Plan) -> Self {
        Self {
            starts_at: SystemClock.now(),
            seconds: plan.seconds,
            load: plan.load,
            allowed: plan.limit as f64 / plan.window.as_secs_f64(),
        }
    }

    /// Returns the time since the start.
    fn now(&self) -> Duration {
        let now = SystemClock.now().as_micros();
        Duration::from_micros(now - self.starts_at.as_micros())
    }

    fn ends_after(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// Returns the number of requests per second that are due at `now`.
    fn rate(&self, now: Duration) -> f64 {
        let whole = self.ends_after().as_secs_f64();
        self.allowed * self.load.at(now.as_secs_f64(), whole)
    }

    /// Calls `show` every `period` until the run ends, and once more at the end.
    pub(crate) fn every(&self, period: Duration, mut show: impl FnMut(Duration)) {
        let mut next = period;
        while next < self.ends_after() {
            std::thread::sleep(next.saturating_sub(self.now()));
            show(self.now().min(self.ends_after()));
            next += period;
        }
        std::thread::sleep(self.ends_after().saturating_sub(self.now()));
        show(self.ends_after());
    }
}

/// Sends the requests that are due to all strategies at the same times, until the run ends.
pub(crate) fn send(run: &Run, strategies: &[StrategyRun], ledgers: &[Ledger]) {
    let mut last = run.now();
    let mut due = 0.0;
    while last < run.ends_after() {
        std::thread::sleep(PAUSE);
        let now = run.now();
        due += run.rate(now) * (now - last).as_secs_f64() / f64::from(WORKERS);
        due = due.min(MAX_CALLS_PER_PAUSE);
        last = now;
        while due >= 1.0 {
            due -= 1.0;
            call_each(run, strategies, ledgers);
        }
    }
}

fn call_each(run: &Run, strategies: &[StrategyRun], ledgers: &[Ledger]) {
    let mut before = run.now();
    for (strategy, ledger) in strategies.iter().zip(ledgers) {
        let outcome = strategy.take();
        let after = run.now();
        ledger.record(outcome, before, after);
        before = after;
    }
}
