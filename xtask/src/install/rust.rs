//! The components of Rust that lints need. Minimal installations lack them.

use std::process::Command;

use super::missing::Missing;
use super::succeeds;

/// The subcommands of cargo, each with its component.
const COMPONENTS: [(&str, &str); 2] = [("fmt", "rustfmt"), ("clippy", "clippy")];

pub(super) fn install_missing() -> Vec<Missing> {
    let absent = COMPONENTS.into_iter().filter(|(subcommand, _)| !runs(subcommand));
    absent
        .filter_map(|(subcommand, component)| {
            println!("cargo {subcommand} is missing: installing {component}");
            let mut rustup = Command::new("rustup");
            let why = crate::run(rustup.args(["component", "add", component])).err()?;
            let remedy = format!("rustup component add {component}");
            Some(Missing { program: format!("cargo {subcommand}"), remedy, why })
        })
        .collect()
}

fn runs(subcommand: &str) -> bool {
    succeeds(Command::new(env!("CARGO")).args([subcommand, "--version"]))
}
