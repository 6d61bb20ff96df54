//! Everything that must hold before a change lands.

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

/// The examples are not built here: Clippy has checked them, and tests include what they try of them.
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

/// `cargo test --no-default-features`, the very command: the library alone, with neither a runtime nor Redis, and nothing installed. `lean`
/// leaves out what only tests of features need, which takes minutes to build.
fn without_features() -> Step {
    build_apart("lean", &["test", "--no-default-features"])
}

/// Explores the interleavings of the lock and of concurrent takes. A build of its own, because the atomics
/// are loom's.
fn model_check() -> Step {
    build_apart("loom", &["test", "--package", "trypema", "--no-default-features", "--lib", "loom"])
}

/// Runs cargo in a build of its own, where `cfg` is set.
fn build_apart(cfg: &str, arguments: &[&str]) -> Step {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).env("RUSTFLAGS", format!("--cfg {cfg}"));
    crate::run(command.env("CARGO_TARGET_DIR", format!("target/{cfg}")))
}
