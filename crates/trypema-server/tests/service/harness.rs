//! Starts the server.

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
    /// The address of the check listener.
    pub address: SocketAddr,
    /// The admin listener, if it is enabled.
    pub admin: Option<Admin>,
}

impl Service {
    /// Starts a server with these flags, on a free port.
    pub fn start(flags: &[&str]) -> Self {
        Self::with_rules("", flags)
    }

    /// Starts a server with these flags, on a free port, with these rules in a file unless they are empty.
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

    /// Starts the command that `command` creates for a temporary directory. It must listen on a free port.
    ///
    /// The admin listener also uses a free port, and stores its token in that directory.
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
        // The server prints it together with the previous line.
        let admin = program.log().lines().find(|line| line.contains("administration is on")).map(address_in);
        let admin = admin.map(|address| Admin { address, token: generated_token(&program, address.port()) });
        Self { program, address, admin }
    }

    /// Runs a command that does not get to serve, and returns its log.
    pub fn refused(command: impl FnOnce(&Path) -> Command) -> String {
        let mut program = Program::start(command).unwrap();
        let ended = program.end().unwrap();
        assert_eq!(ended.code(), Some(2), "{}", program.log());
        program.log()
    }

    /// Returns the address of the admin listener.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.as_ref().expect("administration is off").address
    }

    /// Returns the path of the rules file.
    pub fn rules_file(&self) -> PathBuf {
        self.program.directory().join("rules.yaml")
    }

    /// Opens a connection that sends each request to the right listener, with the admin token.
    pub fn client(&self) -> Client {
        Client::connect(self.address).with_admin(self.admin.clone())
    }

    /// Opens a connection to the admin listener, without a token.
    pub fn admin_client(&self) -> Client {
        Client::connect(self.admin_address())
    }

    /// Sends one `GET` request on a new connection.
    pub fn get(&self, path: &str) -> Reply {
        self.once("GET", path, "")
    }

    /// Sends one `POST` request on a new connection.
    pub fn post(&self, path: &str, body: &str) -> Reply {
        self.once("POST", path, body)
    }

    fn once(&self, method: &str, path: &str, body: &str) -> Reply {
        match &self.admin {
            Some(admin) if is_administration(path) => admin.send(method, path, body),
            _ => self.client().send(method, path, &[], body),
        }
    }

    /// Returns the response of `/readyz` to a client with the admin token.
    pub fn readiness(&self) -> Reply {
        let token = self.admin.as_ref().and_then(|admin| admin.token.clone()).expect("a generated token");
        let authorization = format!("Bearer {token}");
        self.admin_client().send("GET", "/readyz", &[("authorization", &authorization)], "")
    }

    /// Returns the value of a metric. `name` is the start of its line:
    /// `trypema_checks_total{rule="a",result="denied"}`.
    pub fn metric(&self, name: &str) -> f64 {
        let metrics = self.get("/metrics").body;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in\n{metrics}")).parse().unwrap()
    }

    /// Sends SIGTERM and waits until the server has exited.
    pub fn stop(&mut self) -> ExitStatus {
        self.program.signal("TERM").unwrap();
        self.program.end().unwrap()
    }
}

/// Parses the address in `… http://127.0.0.1:8080`.
fn address_in(line: &str) -> SocketAddr {
    line.rsplit("://").next().unwrap().parse().unwrap()
}

/// Returns the token that the server has generated, or `None` if a token was configured.
fn generated_token(program: &Program, port: u16) -> Option<String> {
    let file = program.directory().join(format!("trypema/admin-token-{port}"));
    fs::read_to_string(file).ok().map(|token| token.trim().to_owned())
}

/// Returns a command for the binary, without the settings of the user who runs the tests.
pub fn trypema() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trypema"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TRYPEMA_") {
            command.env_remove(name);
        }
    }
    command.env_remove("RUNTIME_DIRECTORY");
    // Only one server at a time can use the default port.
    command.env("TRYPEMA_ADMIN_LISTEN", "off");
    command
}
