//! Compares every strategy with its model on millions of random traces.
//!
//! `soak [strategy] [--redis] [--traces N] [--seed S]` runs on the local provider, or on a Redis that it
//! starts. Trace number i of a run has the seed S + i, so `soak <strategy> --traces 1 --seed <its seed>`
//! replays a difference.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use trypema::clock::{Clock, SystemClock};
use trypema::redis::RedisConnection;
use trypema_testkit::blocking::connect;
use trypema_testkit::differential::{self, Difference};
use trypema_testkit::for_each_model;
use trypema_testkit::redis::Server;
use trypema_testkit::subject::RedisStrategy;

const USAGE: &str = "usage: soak [strategy] [--redis] [--traces N] [--seed S]";
/// The number of threads. With Redis, they mostly wait.
const THREADS: usize = 4;
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// The number of differences of one strategy that are printed; further ones are only counted.
const SHOWN: u64 = 3;

type Play = fn(u64) -> Result<usize, Box<Difference>>;

macro_rules! strategies {
    ($($name:ident $model:ty;)+) => {
        /// Each model, with the functions that play a trace on the local provider and on Redis.
        const STRATEGIES: &[(&str, [Play; 2])] = &[$(plays::<$model>()),+];
    };
}
for_each_model! { [strategies] }

const fn plays<M: RedisStrategy>() -> (&'static str, [Play; 2]) {
    (M::NAME, [differential::local::<M>, on_redis::<M>])
}

/// The connection to the Redis that traces are played on, while the program runs.
static CONNECTION: OnceLock<RedisConnection> = OnceLock::new();

fn on_redis<M: RedisStrategy>(seed: u64) -> Result<usize, Box<Difference>> {
    match CONNECTION.get() {
        Some(connection) => differential::redis::<M>(connection, seed),
        None => Ok(0),
    }
}

/// The parsed arguments.
struct Plan {
    strategy: Option<String>,
    provider: Provider,
    traces: u64,
    seed: u64,
}

#[derive(Clone, Copy)]
enum Provider {
    Local,
    Redis,
}

/// The progress of one strategy, over all threads.
struct Progress {
    name: &'static str,
    play: Play,
    next: AtomicU64,
    steps: AtomicU64,
    differences: AtomicU64,
}

fn main() -> ExitCode {
    let plan = match Plan::from_arguments(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    let _server = match plan.provider {
        Provider::Local => None,
        Provider::Redis => match Server::start() {
            Ok(server) => {
                CONNECTION.get_or_init(|| connect(&server.url()));
                Some(server)
            }
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        },
    };
    println!("strategy        traces      steps        differences  seconds");
    let is_chosen = |name: &str| plan.strategy.as_deref().is_none_or(|chosen| chosen == name);
    let mut differences = 0;
    for &(name, plays) in STRATEGIES {
        if is_chosen(name) {
            differences += soak(&plan, name, plays[plan.provider as usize]);
        }
    }
    if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Plan {
    fn from_arguments(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut plan = Self { strategy: None, provider: Provider::Local, traces: 1_000_000, seed: 0 };
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let given = arguments.next().unwrap_or_default();
                given.parse().map_err(|_| format!("{argument} needs a number, not `{given}`"))
            };
            match argument.as_str() {
                "--redis" => plan.provider = Provider::Redis,
                "--traces" => plan.traces = number()?,
                "--seed" => plan.seed = number()?,
                name if STRATEGIES.iter().any(|(known, _)| *known == name) => {
                    plan.strategy = Some(argument);
                }
                _ => return Err(format!("unknown argument `{argument}`")),
            }
        }
        Ok(plan)
    }
}

/// Plays all traces of one strategy and prints its result. Returns the number of differences.
fn soak(plan: &Plan, name: &'static str, play: Play) -> u64 {
    let started_us = now_us();
    let progress = Progress {
        name,
        play,
        next: AtomicU64::new(0),
        steps: AtomicU64::new(0),
        differences: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| progress.work(plan))).collect();
        let mut shown_us = started_us;
        while !workers.iter().all(|worker| worker.is_finished()) {
            thread::park_timeout(Duration::from_millis(20));
            if now_us() - shown_us >= PROGRESS_EVERY.as_micros() as u64 {
                shown_us = now_us();
                progress.show(plan, shown_us - started_us);
            }
        }
    });
    let steps = progress.steps.load(Ordering::Relaxed);
    let differences = progress.differences.load(Ordering::Relaxed);
    let seconds = (now_us() - started_us) as f64 / 1e6;
    let traces = plan.traces;
    println!("{name:<15} {traces:<11} {steps:<12} {differences:<12} {seconds:.1}");
    differences
}

impl Progress {
    /// Plays traces until none is left.
    fn work(&self, plan: &Plan) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= plan.traces {
                return;
            }
            let seed = plan.seed.wrapping_add(index);
            match catch_unwind(|| (self.play)(seed)) {
                Ok(Ok(steps)) => {
                    self.steps.fetch_add(steps as u64, Ordering::Relaxed);
                }
                Ok(Err(difference)) => self.count(&difference.to_string(), seed),
                Err(_) => self.count("a panic", seed),
            }
        }
    }

    fn count(&self, what: &str, seed: u64) {
        if self.differences.fetch_add(1, Ordering::Relaxed) < SHOWN {
            let name = self.name;
            eprintln!("{what}\nreplay: soak {name} --traces 1 --seed {seed}\n");
        }
    }

    fn show(&self, plan: &Plan, elapsed_us: u64) {
        let played = self.next.load(Ordering::Relaxed).min(plan.traces);
        let differences = self.differences.load(Ordering::Relaxed);
        let (name, traces) = (self.name, plan.traces);
        let seconds = elapsed_us / 1_000_000;
        eprintln!("{name}: {played} of {traces} traces, {differences} differ, {seconds} s");
    }
}

fn now_us() -> u64 {
    SystemClock.now().as_micros()
}
