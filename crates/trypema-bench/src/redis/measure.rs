//! Interleaved rounds and their medians.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::contender::{Contender, EXACTLY, Load, NAMES, key_names, open, takes_part};
use super::server::{Spent, Watched};
use crate::measure::{Effort, median};

/// A task that never waits (the hybrid's) lets others run after so many calls.
const CALLS_BETWEEN_YIELDS: usize = 128;

/// What is left of a contender's calls (the hybrid's commits) is over before the next one starts.
const PAUSE: Duration = Duration::from_millis(15);

/// One column of the table.
pub struct Workload {
    pub title: &'static str,
    load: Load,
    in_flight: usize,
    keys: usize,
    /// Calls before every slice, so that the state is what the column says.
    settle: Duration,
}

pub const ALONE: &str = "1 in flight";
pub const HOT_256: &str = "256 in flight, one key";
pub const MANY_KEYS: &str = "64 in flight, 10k keys";
pub const EXPIRING: &str = "64 in flight, 10k keys, each take expires a bucket";

pub fn workloads() -> Vec<Workload> {
    let column = |title, load, in_flight, keys| {
        // All that a second of window holds has come, and begins to go.
        let settle = if load == Load::Expiring { Duration::from_millis(1_100) } else { Duration::ZERO };
        Workload { title, load, in_flight, keys, settle }
    };
    vec![
        column(ALONE, Load::Plenty, 1, 1),
        column("64 in flight, one key", Load::Plenty, 64, 1),
        column(HOT_256, Load::Plenty, 256, 1),
        column(MANY_KEYS, Load::Young, 64, 10_000),
        column(EXPIRING, Load::Expiring, 64, 10_000),
        column("64 in flight, one key, denied", Load::Scarce, 64, 1),
    ]
}

/// What one contender came to.
#[derive(Clone, Copy)]
pub struct Sample {
    pub calls_per_second: f64,
    /// Microseconds per call inside Redis commands.
    pub command_us: f64,
    /// Microseconds of Redis's processor time per call.
    pub cpu_us: f64,
}

fn rounds(effort: Effort<'_>) -> usize {
    if effort == Effort::Full { 7 } else { 3 }
}

fn slice(effort: Effort<'_>) -> Duration {
    Duration::from_millis(if effort == Effort::Full { 350 } else { 100 })
}

/// Measures all contenders that take part, one slice each a round.
pub fn column(runtime: &Runtime, server: &mut Watched, of: (&Workload, Effort<'_>)) -> Vec<Option<Sample>> {
    let (workload, effort) = of;
    server.flush();
    let (url, names) = (server.url(), key_names(workload.keys));
    let opened = |name: &&str| {
        takes_part(name, workload.load).then(|| runtime.block_on(open(name, workload.load, (&url, &names))))
    };
    let contenders: Vec<Option<Box<dyn Driven>>> = NAMES.iter().map(opened).collect();
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); NAMES.len()];
    for round in 0..=rounds(effort) {
        for (at, contender) in contenders.iter().enumerate() {
            let Some(contender) = contender else { continue };
            contender.drive(runtime, workload.in_flight, workload.settle);
            let before = server.spent();
            let tally = contender.drive(runtime, workload.in_flight, slice(effort));
            let sample = tally.sample(before, server.spent());
            // The first round loads scripts and makes keys known.
            if round > 0 {
                tally.warn(NAMES[at], workload);
                samples[at].push(sample);
            }
            thread::sleep(PAUSE);
        }
    }
    samples.iter().map(|samples| median_of(samples)).collect()
}

fn median_of(samples: &[Sample]) -> Option<Sample> {
    let of = |part: fn(&Sample) -> f64| median(samples.iter().map(part).collect());
    Some(Sample {
        calls_per_second: of(|sample| sample.calls_per_second)?,
        command_us: of(|sample| sample.command_us)?,
        cpu_us: of(|sample| sample.cpu_us)?,
    })
}

/// How far from its limit each contender ends with 256 callers on one key, by name.
pub fn exactness(runtime: &Runtime, server: &mut Watched) -> Vec<(&'static str, f64)> {
    let (url, names) = (server.url(), key_names(1));
    let counted = NAMES.iter().filter(|name| takes_part(name, Load::Counted));
    let mut miss = |name: &&'static str| {
        server.flush();
        let contender = runtime.block_on(open(name, Load::Counted, (&url, &names)));
        let (mut calls, mut admitted) = (0, 0);
        while calls < 2 * EXACTLY {
            let tally = contender.drive(runtime, 256, Duration::from_millis(50));
            calls += tally.calls.max(1);
            admitted += tally.admitted;
        }
        (*name, admitted.abs_diff(EXACTLY) as f64)
    };
    counted.map(&mut miss).collect()
}

/// A contender with the keys that it is called for.
pub trait Driven {
    /// Calls from `in_flight` tasks for `duration`.
    fn drive(&self, runtime: &Runtime, in_flight: usize, duration: Duration) -> Tally;

    /// One call for the first key.
    fn call(&self, runtime: &Runtime);
}

pub struct Loaded<C: Contender> {
    contender: Arc<C>,
    keys: Arc<Vec<C::Key>>,
}

/// What came of the calls.
#[derive(Default)]
pub struct Tally {
    calls: u64,
    admitted: u64,
    /// Those without an answer, and why the last one had none.
    failed: u64,
    failure: String,
    took: Duration,
}

impl<C: Contender> Loaded<C> {
    pub fn new(contender: C, names: &[String]) -> Self {
        let keys = names.iter().map(|name| C::key(name)).collect();
        Self { contender: Arc::new(contender), keys: Arc::new(keys) }
    }
}

impl<C: Contender> Driven for Loaded<C> {
    fn drive(&self, runtime: &Runtime, in_flight: usize, duration: Duration) -> Tally {
        if duration.is_zero() {
            return Tally::default();
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let start = Instant::now();
        let tasks: Vec<_> = (0..in_flight)
            .map(|task| {
                let (contender, keys) = (Arc::clone(&self.contender), Arc::clone(&self.keys));
                // The tasks follow each other through the keys at even distances.
                let first = task * keys.len() / in_flight;
                runtime.spawn(call_until(contender, (keys, first), Arc::clone(&is_over)))
            })
            .collect();
        thread::sleep(duration);
        is_over.store(true, Ordering::Relaxed);
        let mut total = Tally::default();
        for task in tasks {
            total.add(runtime.block_on(task).expect("a task that ends"));
        }
        total.took = start.elapsed();
        total
    }

    fn call(&self, runtime: &Runtime) {
        runtime.block_on(self.contender.check(&self.keys[0])).expect("an answer");
    }
}

async fn call_until<C: Contender>(
    contender: Arc<C>,
    (keys, first): (Arc<Vec<C::Key>>, usize),
    is_over: Arc<AtomicBool>,
) -> Tally {
    let mut tally = Tally::default();
    let mut at = first;
    let mut until_yield = CALLS_BETWEEN_YIELDS;
    while !is_over.load(Ordering::Relaxed) {
        tally.count(contender.check(&keys[at]).await);
        at = if at + 1 == keys.len() { 0 } else { at + 1 };
        until_yield -= 1;
        if until_yield == 0 {
            until_yield = CALLS_BETWEEN_YIELDS;
            tokio::task::yield_now().await;
        }
    }
    tally
}

impl Tally {
    fn count(&mut self, answer: Result<bool, String>) {
        self.calls += 1;
        match answer {
            Ok(is_admitted) => self.admitted += u64::from(is_admitted),
            Err(failure) => {
                self.failed += 1;
                self.failure = failure;
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.admitted += other.admitted;
        self.failed += other.failed;
        if other.failed > 0 {
            self.failure = other.failure;
        }
    }

    fn sample(&self, before: Spent, after: Spent) -> Sample {
        let calls = self.calls as f64;
        Sample {
            calls_per_second: (self.calls - self.failed) as f64 / self.took.as_secs_f64(),
            command_us: (after.commands - before.commands) / calls,
            cpu_us: (after.cpu - before.cpu) / calls,
        }
    }

    /// Says so if the calls were not what the column is about.
    fn warn(&self, name: &str, workload: &Workload) {
        if self.failed > 0 {
            eprintln!("  {name}: {} of {} calls failed: {}", self.failed, self.calls, self.failure);
        }
        let answered = self.calls - self.failed;
        let expected = if workload.load == Load::Scarce { 0 } else { answered };
        if self.admitted.abs_diff(expected) * 100 > answered {
            eprintln!("  {name}: {} of {answered} calls were admitted", self.admitted);
        }
    }
}
