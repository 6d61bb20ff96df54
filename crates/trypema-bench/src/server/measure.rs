//! Interleaved rounds and their medians.

use std::path::PathBuf;
use std::thread;

use super::contender::Contender;
use super::load::{self, Load};
use super::place::Place;
use super::process::Server;
use super::workload::{HOT_USER, TO_BE_KNOWN, Workload};
use crate::keys;
use crate::measure::{Effort, median};

/// The number of connections that send the first requests of all users.
const PRIMING_CONNECTIONS: u64 = 8;

/// The result of one contender in one column: medians of its rounds, and of its ratios to others in the same
/// round.
#[derive(Clone, Copy)]
pub struct Sample {
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Microseconds of the server's processor time per request.
    pub cpu_us: f64,
    pub of_floor: f64,
    pub of_throttlecrab: f64,
    pub request_bytes: usize,
    pub answer_bytes: usize,
}

/// A contender whose server is running.
struct Runner {
    contender: Contender,
    server: Server,
    script: PathBuf,
    rounds: Vec<Round>,
}

/// The result of one contender in one round.
struct Round {
    load: Load,
    cpu_us: f64,
}

/// Measures all contenders, in the order of [`Contender::ALL`].
pub fn column(workload: &Workload, place: &Place, effort: Effort<'_>) -> Result<Vec<Sample>, String> {
    let rounds = if effort == Effort::Full { 15 } else { 3 };
    let runners = Contender::ALL.into_iter().map(|contender| Runner::start(contender, workload, place));
    let mut runners = runners.collect::<Result<Vec<_>, _>>()?;
    for runner in &runners {
        runner.prime(workload)?;
    }
    for round in 0..rounds {
        for turn in 0..runners.len() {
            // Rotate the order, so that no contender is always first.
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

    /// Sends the first requests of every user, so that all are known and, in columns with denials, exhausted.
    fn prime(&self, workload: &Workload) -> Result<(), String> {
        let share = |connection| {
            let mut client = self.server.client();
            for user in (connection..workload.users).step_by(PRIMING_CONNECTIONS as usize) {
                let user = if workload.users == 1 { HOT_USER } else { user };
                for _ in 0..TO_BE_KNOWN {
                    self.contender.ask(workload, &mut client, user)?;
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            let shares = (0..PRIMING_CONNECTIONS).map(|connection| scope.spawn(move || share(connection)));
            let shares: Vec<_> = shares.collect();
            shares.into_iter().try_for_each(|share| share.join().expect("a connection that ends"))
        })
    }

    fn run(&mut self, workload: &Workload) -> Result<(), String> {
        self.contender.check(workload, &self.server)?;
        let before = self.server.cpu_seconds();
        let asked: f64 = self.rounds.iter().map(|round| round.load.requests).sum();
        let load = load::run(&self.server, self.contender.path(), (&self.script, asked as u64))?;
        let cpu_us = (self.server.cpu_seconds() - before) * 1e6 / load.requests;
        self.rounds.push(Round { load, cpu_us });
        self.contender.check(workload, &self.server).map(|_| ())
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
