//! One server.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::account::Account;
use super::processes::Processes;
use super::programs::Programs;
use super::template::{self, PASSWORD, ROLE, SUPERUSER};
use crate::redis::{Directory, Error, Port, Result};

/// The number of attempts to start. Another program may take the port between its choice and its use; three
/// times in a row is practically impossible.
const ATTEMPTS: usize = 3;
/// The log message of a port that is taken.
const PORT_TAKEN: &str = "Address already in use";
/// The timeout of a superuser's session in seconds, the same as all waits of this module.
const CONNECT_TIMEOUT: &str = "30";
/// The timeout for a session to end, in milliseconds. A session ends immediately unless it is stopped.
const TERMINATION_TIMEOUT_MS: u32 = 30_000;
/// The server's settings. `fsync` is off, which matters only if the machine fails: a commit is written
/// before it is acknowledged, so it survives a killed server. Shared memory is in files, which are removed
/// with the directory.
const SETTINGS: [&str; 9] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_permissions=0700",
    "password_encryption=scram-sha-256",
    "max_connections=50",
    "shared_buffers=16MB",
    "dynamic_shared_memory_type=mmap",
    "fsync=off",
    "autovacuum=off",
    "jit=off",
];

/// A real PostgreSQL on its own loopback port, killed when dropped.
///
/// It has the database `trypema`, owned by the role `trypema`, which logs in with a password and is not a
/// superuser. Committed data survives [`kill_9`](Server::kill_9). All methods can be called from any
/// thread.
#[derive(Debug)]
pub struct Server {
    // Fields are dropped in order: the processes before the directory they write to, and that before the
    // port they listen on.
    processes: Mutex<Option<Processes>>,
    programs: Programs,
    account: Account,
    directory: Directory,
    port: Port,
}

impl Server {
    /// Starts the highest installed version and waits until it answers. The first start on a machine takes
    /// seconds longer, because it creates the template that the others copy.
    pub fn start() -> Result<Self> {
        let mut outcome = Self::start_once();
        for _ in 1..ATTEMPTS {
            match &outcome {
                Err(error) if error.to_string().contains(PORT_TAKEN) => outcome = Self::start_once(),
                _ => break,
            }
        }
        outcome
    }

    /// Returns the URL for the role `trypema`, with its initial password.
    pub fn url(&self) -> String {
        self.url_with_password(PASSWORD)
    }

    /// Returns the URL for the role `trypema` with this password, of any characters.
    pub fn url_with_password(&self, password: &str) -> String {
        format!("postgres://{ROLE}:{}@{}/{ROLE}", percent_encoded(password), self.addr())
    }

    /// Returns the address of the server.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// Returns the port of the server, which stays the same after a restart.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Kills all processes of the server with SIGKILL. They have ended when this returns.
    pub fn kill_9(&self) -> Result<()> {
        match self.processes().take() {
            Some(processes) => {
                drop(processes);
                Ok(())
            }
            None => Err(not_running()),
        }
    }

    /// Starts the server again with the same data on the same port, and waits until it answers. Kills it
    /// first if it is running.
    pub fn restart(&self) -> Result<()> {
        let mut processes = self.processes();
        drop(processes.take());
        let mut command = self.programs.command("postgres");
        command.arg("-D").arg(self.data()).args(["-p", &self.port().to_string()]);
        command.arg("-k").arg(self.directory.path());
        command.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        self.account.run(&mut command);
        let mut started = Processes::start(&mut command, self.directory.path(), &self.log_file())?;
        started.wait_until_ready().map_err(|error| {
            let (port, log) = (self.port(), self.log());
            Error::new(format!("PostgreSQL on port {port}: {error}; its log:\n{log}"))
        })?;
        *processes = Some(started);
        Ok(())
    }

    /// Stops the server and all of its sessions with SIGSTOP: connections are accepted, but nothing is
    /// answered.
    pub fn stop(&self) -> Result<()> {
        self.processes().as_mut().ok_or_else(not_running)?.stop()
    }

    /// Continues a stopped server, which then processes the requests that were sent meanwhile.
    pub fn cont(&self) -> Result<()> {
        self.processes().as_mut().ok_or_else(not_running)?.cont()
    }

    /// Runs statements as superuser in the database `trypema`, up to the first that fails. Returns the
    /// rows, one per line, with `|` between values. Each statement is its own transaction, unless the
    /// script contains `BEGIN`.
    pub fn sql(&self, script: &str) -> Result<String> {
        if self.processes().as_ref().ok_or_else(not_running)?.is_stopped() {
            return Err(Error::new("the server is stopped"));
        }
        let failed = || Error::during("running psql");
        let mut psql = self.psql();
        psql.args(["--quiet", "--no-align", "--tuples-only", "--set=ON_ERROR_STOP=1"]);
        psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut psql = psql.spawn().map_err(failed())?;
        let input = psql.stdin.take();
        let output = thread::scope(|scope| {
            // Write on another thread while reading: the output may exceed a pipe's buffer.
            scope.spawn(|| input.map(|mut input| input.write_all(script.as_bytes())));
            psql.wait_with_output()
        });
        let output = output.map_err(failed())?;
        if !output.status.success() {
            return Err(Error::new(String::from_utf8_lossy(&output.stderr).trim_end()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
    }

    /// Returns the command `psql` for a session as superuser in the database `trypema`.
    pub fn psql(&self) -> Command {
        let mut psql = self.programs.command("psql");
        psql.args(["--no-psqlrc", "--username", SUPERUSER, "--dbname", ROLE]);
        psql.args(["--port", &self.port().to_string()]).arg("--host").arg(self.directory.path());
        psql.env("PGCONNECT_TIMEOUT", CONNECT_TIMEOUT);
        psql
    }

    /// Changes the password of the role `trypema`. Open sessions stay open.
    pub fn set_password(&self, password: &str) -> Result<()> {
        let quoted = password.replace('\'', "''");
        self.sql(&format!("ALTER ROLE {ROLE} PASSWORD '{quoted}'")).map(drop)
    }

    /// Ends all sessions of the role `trypema`. They have ended when this returns. New sessions are
    /// accepted.
    pub fn disconnect_all(&self) -> Result<()> {
        let sessions = format!("FROM pg_stat_activity WHERE usename = '{ROLE}'");
        self.sql(&format!("SELECT pg_terminate_backend(pid, {TERMINATION_TIMEOUT_MS}) {sessions}")).map(drop)
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn start_once() -> Result<Self> {
        let port = Port::any()?;
        let programs = Programs::find()?;
        let directory = Directory::create()?;
        let account = Account::find(directory.path())?;
        account.own(directory.path())?;
        let server = Self { processes: Mutex::new(None), programs, account, directory, port };
        template::copy_to(&server.data(), &server.programs, account)?;
        server.restart()?;
        Ok(server)
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("server.log")
    }

    fn processes(&self) -> MutexGuard<'_, Option<Processes>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_running() -> Error {
    Error::new("the server is not running")
}

/// Percent-encodes all bytes but letters, digits, `-`, `_` and `.`.
fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
