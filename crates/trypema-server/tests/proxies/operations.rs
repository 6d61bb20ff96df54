//! The files to run and monitor the server, each checked with the real tool if there is one.

#[path = "operations/containers.rs"]
mod containers;
#[path = "operations/dashboard.rs"]
mod dashboard;
#[path = "operations/installed.rs"]
mod installed;
#[path = "operations/live.rs"]
mod live;
#[path = "operations/prometheus.rs"]
mod prometheus;
#[path = "operations/settings.rs"]
mod settings;
#[path = "operations/systemd.rs"]
mod systemd;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::text_of;

/// Creates an empty directory for one test.
fn directory(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Runs a tool, which must be installed and succeed, and returns its output.
fn run(command: &mut Command) -> String {
    let shown = format!("{command:?}");
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{shown}: {error}: `cargo xtask test` installs it"));
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}: {}\n{printed}", output.status);
    printed.into_owned()
}

/// Parses a YAML file of `deploy/`.
fn yaml_of(name: &str) -> Value {
    serde_saphyr::from_str(&text_of(name)).unwrap_or_else(|error| panic!("deploy/{name}: {error}"))
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|item| item.as_str().unwrap()).collect()
}
