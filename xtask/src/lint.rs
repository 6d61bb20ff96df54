//! What a tool can check of how the code reads.

use std::process::Command;

use crate::{Step, cargo};

pub(crate) fn run() -> Step {
    cargo(["fmt", "--all", "--check"])?;
    cargo(["clippy", "--all-targets", "--all-features", "--", "-D", "warnings"])?;
    for features in ["", "tracing"] {
        cargo(["check", "--package", "trypema", "--no-default-features", "--features", features])?;
    }
    lean_tree()?;
    let mut docs = Command::new(env!("CARGO"));
    docs.args(["doc", "--no-deps", "--all-features"]);
    crate::run(docs.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Without features the library has neither Redis nor an async runtime in its tree.
fn lean_tree() -> Step {
    let arguments = ["tree", "--package", "trypema", "--no-default-features", "--edges", "normal"];
    let output = Command::new(env!("CARGO")).args(arguments).output();
    let output = output.map_err(|error| format!("cargo tree could not be started: {error}"))?;
    let tree = String::from_utf8_lossy(&output.stdout);
    for banned in ["tokio", "redis", "smol", "async-std"] {
        if tree.lines().any(|line| {
            line.trim_start_matches(['│', '├', '└', '─', ' ']).starts_with(&format!("{banned} v"))
        }) {
            return Err(format!("`{banned}` is in the tree of trypema without features:\n{tree}"));
        }
    }
    Ok(())
}
