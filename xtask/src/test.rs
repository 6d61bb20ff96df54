//! All checks that must pass before a change lands.

mod suites;

use std::process::Command;

use crate::install::{self, For};
use crate::report::Report;
use crate::{Step, cargo, lint};

/// The tests to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tests {
    Everything(Runner),
    /// Those of the library, with Redis.
    Redis,
}

/// The program that runs the tests of all features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    /// `cargo test`, which every machine has.
    Cargo,
    /// `cargo nextest run`: a process for each test.
    Nextest,
}

impl Tests {
    /// Reads the words after `cargo xtask test`.
    pub(crate) fn of(words: &[&str]) -> Option<Self> {
        match words {
            [] => Some(Self::Everything(Runner::Cargo)),
            ["--nextest"] => Some(Self::Everything(Runner::Nextest)),
            ["redis"] => Some(Self::Redis),
            _ => None,
        }
    }

    /// Runs the tests, and prints the time that each suite took.
    pub(crate) fn run(self) -> Step {
        let mut report = Report::new();
        let outcome = match self {
            Self::Everything(runner) => everything(runner, &mut report),
            Self::Redis => redis(&mut report),
        };
        if outcome.is_err() {
            report.end_of("the step that failed");
        }
        println!("\n{}", report.table());
        outcome
    }
}

fn everything(runner: Runner, report: &mut Report) -> Step {
    install::run(For::Everything)?;
    report.end_of("install");
    lint::run()?;
    report.end_of("lint");
    every_test(runner, report)?;
    suites::run(Command::new(env!("CARGO")).args(["test", "--all-features", "--doc"]), "examples", report)?;
    without_features(report)?;
    model_check(report)
}

/// Runs the tests of the library that need no server, and those that need Redis.
fn redis(report: &mut Report) -> Step {
    install::run(For::Redis)?;
    report.end_of("install");
    let library = ["test", "--package", "trypema", "--all-features", "--tests"];
    suites::run(Command::new(env!("CARGO")).args(library), "all features", report)
}

/// Runs all tests. Examples are not built here: clippy has checked them, and tests include the parts that
/// they exercise.
fn every_test(runner: Runner, report: &mut Report) -> Step {
    match runner {
        Runner::Cargo => {
            let mut tests = Command::new(env!("CARGO"));
            suites::run(tests.args(["test", "--all-features", "--tests"]), "all features", report)
        }
        Runner::Nextest => {
            cargo(["nextest", "run", "--all-features", "--tests"])?;
            report.end_of("all features: nextest");
            Ok(())
        }
    }
}

/// Runs `cargo test --no-default-features`: the library alone, without a runtime, Redis or installed
/// programs. `lean` leaves out the dependencies of feature tests, which take minutes to build.
fn without_features(report: &mut Report) -> Step {
    suites::run(&mut apart("lean", &["test", "--no-default-features"]), "no features", report)
}

/// Explores the interleavings of the lock and of concurrent takes with loom. This needs a separate build,
/// because the atomics are loom's.
fn model_check(report: &mut Report) -> Step {
    let arguments = ["test", "--package", "trypema", "--no-default-features", "--lib", "loom"];
    suites::run(&mut apart("loom", &arguments), "loom", report)
}

/// Returns a cargo command with a separate target directory, and with `cfg` set.
fn apart(cfg: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).env("RUSTFLAGS", format!("--cfg {cfg}"));
    command.env("CARGO_TARGET_DIR", format!("target/{cfg}"));
    command
}
