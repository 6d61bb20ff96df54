//! The server under attack.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use trypema_testkit::program::Program;

use crate::Failure;

/// The memory budget for bodies and unread responses: the server's default.
pub(crate) const BUDGET: u64 = 64 * 1024 * 1024;
/// Three rules that apply to every check and never deny it.
const RULES: &str = "
rules:
  - {id: per-user, scope: user, strategy: {fixed_window: {limit: 1000000000, window: 30d}}}
  - {id: per-user-bucket, scope: user, strategy: {token_bucket: {limit: 1000000000, window: 1h}}}
  - {id: everybody, scope: global, strategy: {sliding_window: {limit: 1000000000, window: 1h}}}
";
const PATIENCE: Duration = Duration::from_secs(10);

/// A running server.
pub(crate) struct Service {
    program: Program,
    address: SocketAddr,
    /// The address of the metrics.
    admin: SocketAddr,
}

impl Service {
    /// Starts a server with its default bounds. Only the address of the well-behaved client is a trusted
    /// proxy.
    pub(crate) fn start() -> Result<Self, Failure> {
        let binary = std::env::current_exe()?.with_file_name("trypema");
        if !binary.exists() {
            let path = binary.display();
            return Err(format!("{path} is missing: run `cargo xtask soak connections`").into());
        }
        let mut written = Ok(());
        let mut program = Program::start(|directory| {
            let rules = directory.join("rules.yaml");
            written = fs::write(&rules, RULES);
            let mut command = Command::new(binary);
            command.args(["serve", "--listen", "127.0.0.1:0", "--trusted-proxies", "127.0.0.1/32"]);
            command.arg("--rules").arg(rules);
            command.args(["--admin-listen", "127.0.0.1:0"]).env("XDG_RUNTIME_DIR", directory);
            command
        })?;
        written?;
        let mut address = |text| -> Result<SocketAddr, Failure> {
            let line = program.line(text)?;
            let address = line.rsplit("://").next().and_then(|rest| rest.split_whitespace().next());
            Ok(address.unwrap_or_default().parse()?)
        };
        let (address, admin) = (address("listens on")?, address("administration is on")?);
        Ok(Self { program, address, admin })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections that the server closed early for this reason.
    pub(crate) fn closed(&self, reason: &str) -> u64 {
        self.metric(&format!("trypema_connections_closed_early_total{{reason=\"{reason}\"}}"))
    }

    /// Returns the bytes of bodies and unread responses.
    pub(crate) fn buffered(&self) -> u64 {
        self.metric("trypema_buffered_bytes")
    }

    /// Returns the bytes of resident memory.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.program.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
    }

    /// Returns the value of a metric; 0 if it cannot be read.
    fn metric(&self, name: &str) -> u64 {
        let text = self.metrics().unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    fn metrics(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.admin)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: soak\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }
}
