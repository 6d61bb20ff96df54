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

/// The library alone: no runtime, no Redis, nothing else installed, nor anything that only other tests need.
fn without_features() -> Step {
    apart("lean", &["--lib", "--test", "seeds"])
}

/// Explores the interleavings of the lock and of concurrent takes. A build of its own, because the atomics
/// are loom's.
fn model_check() -> Step {
    apart("loom", &["--lib", "loom"])
}

/// Tests the library without features in a build of its own, where `cfg` is set.
fn apart(cfg: &str, tests: &[&str]) -> Step {
    let mut test = Command::new(env!("CARGO"));
    test.args(["test", "--package", "trypema", "--no-default-features"]).args(tests);
    crate::run(test.env("RUSTFLAGS", format!("--cfg {cfg}")).env("CARGO_TARGET_DIR", format!("target/{cfg}")))
}
