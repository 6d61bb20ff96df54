//! Interleaved rounds and their medians.

use std::path::PathBuf;

use super::contender::Contender;
use super::load::{self, Load};
use super::place::Place;
use super::process::Server;
use super::workload::{HOT_USER, Workload};
use crate::keys;
use crate::measure::{Effort, median};

/// Each user is asked for so often before the measurement: once is enough to be known, and to be exhausted.
const REQUESTS_TO_BE_KNOWN: f64 = 3.0;

/// What one contender did in one column: medians of its rounds, and of its ratios to others in the same round.
#[derive(Clone, Copy)]
pub struct Sample {
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Of the server's processor time, for each request.
    pub cpu_us: f64,
    pub of_floor: f64,
    pub of_throttlecrab: f64,
    pub request_bytes: usize,
    pub answer_bytes: usize,
}

/// A contender that is ready to be asked.
struct Runner {
    contender: Contender,
    server: Server,
    script: PathBuf,
    rounds: Vec<Round>,
}

/// One turn of one contender.
struct Round {
    load: Load,
    cpu_us: f64,
}

/// Measures all contenders, in the order of [`Contender::ALL`].
pub fn column(workload: &Workload, place: &Place, effort: Effort<'_>) -> Result<Vec<Sample>, String> {
    let rounds = if effort == Effort::Full { 15 } else { 3 };
    let runners = Contender::ALL.into_iter().map(|contender| Runner::start(contender, workload, place));
    let mut runners = runners.collect::<Result<Vec<_>, _>>()?;
    for runner in &mut runners {
        runner.prime(workload)?;
    }
    for round in 0..rounds {
        for turn in 0..runners.len() {
            // Nobody is always the first.
            let at = (round + turn) % Contender::ALL.len();
            runners[at].run(workload)?;
        }
    }
    runners.iter().map(|runner| runner.sample(workload, &runners)).collect()
}

impl Runner {
    fn start(contender: Contender, workload: &Workload, place: &Place) -> Result<Self, String> {
        let script = load::script(contender, workload, place)?;
        let server = contender.start(workload, place)?;
        Ok(Self { contender, server, script, rounds: Vec::new() })
    }

    fn prime(&mut self, workload: &Workload) -> Result<(), String> {
        let mut requests = 0.0;
        while requests < REQUESTS_TO_BE_KNOWN * workload.users as f64 {
            requests += self.load()?.requests;
        }
        Ok(())
    }

    fn run(&mut self, workload: &Workload) -> Result<(), String> {
        self.contender.check(workload, &self.server)?;
        let before = self.server.cpu_seconds();
        let load = self.load()?;
        let cpu_us = (self.server.cpu_seconds() - before) * 1e6 / load.requests;
        self.rounds.push(Round { load, cpu_us });
        self.contender.check(workload, &self.server).map(|_| ())
    }

    fn load(&self) -> Result<Load, String> {
        load::run(&self.server, self.contender.path(), &self.script)
    }

    fn sample(&self, workload: &Workload, all: &[Self]) -> Result<Sample, String> {
        let of = |part: fn(&Round) -> f64| median(self.rounds.iter().map(part).collect()).unwrap_or(f64::NAN);
        let ratio_to = |contender| {
            let other = all.iter().find(|runner| runner.contender == contender);
            let pairs = self.rounds.iter().zip(other.map_or(&[][..], |other| &other.rounds));
            median(pairs.map(|(ours, theirs)| ours.per_second() / theirs.per_second()).collect())
                .unwrap_or(f64::NAN)
        };
        Ok(Sample {
            per_second: of(Round::per_second),
            p50_us: of(|round| round.load.p50_us),
            p99_us: of(|round| round.load.p99_us),
            cpu_us: of(|round| round.cpu_us),
            of_floor: ratio_to(Contender::Floor),
            of_throttlecrab: ratio_to(Contender::Throttlecrab),
            request_bytes: self.contender.body(workload, &keys::name(HOT_USER)).len(),
            answer_bytes: self.contender.check(workload, &self.server)?.bytes,
        })
    }
}

impl Round {
    fn per_second(&self) -> f64 {
        self.load.requests / self.load.seconds
    }
}
