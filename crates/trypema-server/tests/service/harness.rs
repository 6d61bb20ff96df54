//! Starting the service.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use trypema_testkit::program::Program;

use crate::client::{Client, Reply};

/// A running `trypema serve`.
pub struct Service {
    pub program: Program,
    pub address: SocketAddr,
}

impl Service {
    /// The service with these flags, on a port of its own.
    pub fn start(flags: &[&str]) -> Self {
        Self::with_rules("", flags)
    }

    /// The same with these rules in a file of its own, unless they are empty.
    pub fn with_rules(rules: &str, flags: &[&str]) -> Self {
        Self::of(|directory| {
            let mut command = trypema();
            command.args(["serve", "--listen", "127.0.0.1:0"]).args(flags);
            if !rules.is_empty() {
                let file = directory.join("rules.yaml");
                fs::write(&file, rules).unwrap();
                command.arg("--rules").arg(file);
            }
            command
        })
    }

    /// What `command` makes of a directory of its own; it has to listen on a port of its own.
    pub fn of(command: impl FnOnce(&Path) -> Command) -> Self {
        let mut program = Program::start(command).unwrap();
        let line = program.line("listens on").unwrap();
        let address = line.rsplit("://").next().unwrap().parse().unwrap();
        Self { program, address }
    }

    /// Where its file of rules is.
    pub fn rules_file(&self) -> PathBuf {
        self.program.directory().join("rules.yaml")
    }

    /// A new connection to it.
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// One request on a connection of its own.
    pub fn get(&self, path: &str) -> Reply {
        self.client().send("GET", path, &[], "")
    }

    /// One request on a connection of its own.
    pub fn post(&self, path: &str, body: &str) -> Reply {
        self.client().send("POST", path, &[], body)
    }

    /// The value of a metric, as its line begins: `trypema_checks_total{rule="a",result="denied"}`.
    pub fn metric(&self, name: &str) -> f64 {
        let metrics = self.get("/metrics").body;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in\n{metrics}")).parse().unwrap()
    }

    /// Asks it to stop, and waits until it has.
    pub fn stop(&mut self) -> ExitStatus {
        self.program.signal("TERM").unwrap();
        self.program.end().unwrap()
    }
}

/// The binary, without settings of whoever runs the tests.
pub fn trypema() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trypema"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TRYPEMA_") {
            command.env_remove(name);
        }
    }
    command
}
