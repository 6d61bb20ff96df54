//! Starting the service.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use trypema_testkit::program::Program;

use crate::client::{Admin, Client, Reply, is_administration};

/// A running `trypema serve`.
pub struct Service {
    pub program: Program,
    /// The check listener.
    pub address: SocketAddr,
    /// The administration listener, if there is one.
    pub admin: Option<Admin>,
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
    ///
    /// Administration is on a port of its own, too, and keeps its token in that directory.
    pub fn of(command: impl FnOnce(&Path) -> Command) -> Self {
        let mut program = Program::start(|directory| {
            let mut command = command(directory);
            let given =
                |name: &str| command.get_envs().find(|(given, _)| *given == name).map(|(_, value)| value);
            if given("TRYPEMA_ADMIN_LISTEN") == Some(Some(OsStr::new("off"))) {
                command.env("TRYPEMA_ADMIN_LISTEN", "127.0.0.1:0");
            }
            if command.get_envs().all(|(name, _)| name != "XDG_RUNTIME_DIR") {
                command.env("XDG_RUNTIME_DIR", directory);
            }
            command
        })
        .unwrap();
        let address = address_in(&program.line("listens on").unwrap());
        // It is printed together with the line before.
        let admin = program.log().lines().find(|line| line.contains("administration is on")).map(address_in);
        let admin = admin.map(|address| Admin { address, token: generated_token(&program, address.port()) });
        Self { program, address, admin }
    }

    /// The administration listener.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.as_ref().expect("administration is off").address
    }

    /// Where its file of rules is.
    pub fn rules_file(&self) -> PathBuf {
        self.program.directory().join("rules.yaml")
    }

    /// A new connection to it.
    pub fn client(&self) -> Client {
        Client::connect(self.address).with_admin(self.admin.clone())
    }

    /// A new connection to the administration listener, without a token.
    pub fn admin_client(&self) -> Client {
        Client::connect(self.admin_address())
    }

    /// One request on a connection of its own.
    pub fn get(&self, path: &str) -> Reply {
        self.once("GET", path, "")
    }

    /// One request on a connection of its own.
    pub fn post(&self, path: &str, body: &str) -> Reply {
        self.once("POST", path, body)
    }

    fn once(&self, method: &str, path: &str, body: &str) -> Reply {
        match &self.admin {
            Some(admin) if is_administration(path) => admin.send(method, path, body),
            _ => self.client().send(method, path, &[], body),
        }
    }

    /// What `/readyz` tells those with a token.
    pub fn readiness(&self) -> Reply {
        let token = self.admin.as_ref().and_then(|admin| admin.token.clone()).expect("a generated token");
        let authorization = format!("Bearer {token}");
        self.admin_client().send("GET", "/readyz", &[("authorization", &authorization)], "")
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

/// The address in `… http://127.0.0.1:8080`.
fn address_in(line: &str) -> SocketAddr {
    line.rsplit("://").next().unwrap().parse().unwrap()
}

/// The token that the service has generated, if none was configured.
fn generated_token(program: &Program, port: u16) -> Option<String> {
    let file = program.directory().join(format!("trypema/admin-token-{port}"));
    fs::read_to_string(file).ok().map(|token| token.trim().to_owned())
}

/// The binary, without settings of whoever runs the tests.
pub fn trypema() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trypema"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TRYPEMA_") {
            command.env_remove(name);
        }
    }
    command.env_remove("RUNTIME_DIRECTORY");
    // The default port is for one service at a time.
    command.env("TRYPEMA_ADMIN_LISTEN", "off");
    command
}
