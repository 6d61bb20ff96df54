//! All checks that must pass before a change lands.

use std::process::Command;

use crate::{Step, cargo, install, lint};

pub(crate) fn run() -> Step {
    install::run()?;
    lint::run()?;
    every_test()?;
    cargo(["test", "--all-features", "--doc"])?;
    without_features()?;
    model_check()
}

/// Runs all tests. Examples are not built here: clippy has checked them, and tests include the parts that
/// they exercise.
fn every_test() -> Step {
    if has_nextest() {
        cargo(["nextest", "run", "--all-features", "--tests"])
    } else {
        cargo(["test", "--all-features", "--tests"])
    }
}

fn has_nextest() -> bool {
    let version = Command::new(env!("CARGO")).args(["nextest", "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}

/// Runs `cargo test --no-default-features`: the library alone, without a runtime, Redis or installed
/// programs. `lean` leaves out the dependencies of feature tests, which take minutes to build.
fn without_features() -> Step {
    build_apart("lean", &["test", "--no-default-features"])
}

/// Explores the interleavings of the lock and of concurrent takes with loom. This needs a separate build,
/// because the atomics are loom's.
fn model_check() -> Step {
    build_apart("loom", &["test", "--package", "trypema", "--no-default-features", "--lib", "loom"])
}

/// Runs cargo in a separate target directory, with `cfg` set.
fn build_apart(cfg: &str, arguments: &[&str]) -> Step {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).env("RUSTFLAGS", format!("--cfg {cfg}"));
    crate::run(command.env("CARGO_TARGET_DIR", format!("target/{cfg}")))
}
