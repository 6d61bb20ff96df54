//! Everything that must hold before a change lands.

use std::process::Command;

use crate::{Step, cargo, install, lint};

pub(crate) fn run() -> Step {
    install::run()?;
    lint::run()?;
    if has_nextest() {
        cargo(["nextest", "run", "--all-features"])?;
        cargo(["test", "--all-features", "--doc"])?;
    } else {
        cargo(["test", "--all-features"])?;
    }
    without_features()?;
    model_check()
}

fn has_nextest() -> bool {
    let version = Command::new(env!("CARGO")).args(["nextest", "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}

/// The library alone: no runtime, no Redis, nothing else installed.
fn without_features() -> Step {
    cargo(["test", "--package", "trypema", "--no-default-features", "--lib", "--test", "seeds"])
}

/// Explores the interleavings of the lock and of concurrent takes. A build of its own, because the atomics
/// are loom's.
fn model_check() -> Step {
    let mut check = Command::new(env!("CARGO"));
    check.args(["test", "--package", "trypema", "--no-default-features", "--lib", "loom"]);
    crate::run(check.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", "target/loom"))
}
