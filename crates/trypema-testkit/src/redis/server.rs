//! One server.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::directory::Directory;
use super::port::Port;
use super::process::Process;
use super::wait::poll;
use super::{Binary, Control, Error, Info, Monitor, Result, ServerBuilder, Shared};

/// A real server on its own loopback port, killed when dropped.
///
/// It keeps nothing on disk unless configured otherwise (`set("appendonly", "yes")`). All methods can be
/// called from any thread.
#[derive(Debug)]
pub struct Server {
    // Fields are dropped in order: the process before the directory it writes to, and that before the port
    // it listens on.
    pub(super) process: Mutex<Option<Process>>,
    pub(super) arguments: Vec<&'static str>,
    pub(super) password: Option<String>,
    pub(super) binary: Binary,
    pub(super) directory: Directory,
    pub(super) port: Port,
}

impl Server {
    /// Starts the `redis-server` on the `PATH` and waits until it answers.
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// Returns a builder for other settings.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Returns the server that `REDIS_URL` or `REDIS_PORT` names, otherwise a new one. For tests that only
    /// need its address.
    pub fn shared() -> Result<Shared> {
        Shared::open()
    }

    /// Returns the URL: `redis://127.0.0.1:port`, with the password if there is one.
    pub fn url(&self) -> String {
        match &self.password {
            Some(password) => self.url_as("", password),
            None => format!("redis://{}", self.addr()),
        }
    }

    /// Returns the URL for a user that was given to [`ServerBuilder::user`].
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@{}", self.addr())
    }

    /// Returns the address of the server.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// Returns the port of the server, which stays the same after a restart.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Opens a connection for commands.
    pub fn control(&self) -> Result<Control> {
        Control::open(&self.url())
    }

    /// Kills the server with SIGKILL. It has ended when this returns.
    pub fn kill_9(&self) -> Result<()> {
        match self.process().take() {
            Some(process) => {
                drop(process);
                Ok(())
            }
            None => Err(Error::new("the server is not running")),
        }
    }

    /// Starts the server again on the same port, and waits until it answers. Kills it first if it is
    /// running.
    pub fn restart(&self) -> Result<()> {
        let mut process = self.process();
        drop(process.take());
        let mut command = Command::new(self.binary.path());
        command.arg(self.settings()).args(&self.arguments);
        let mut started = Process::start(&mut command, self.directory.path(), &self.log_file())?;
        self.wait_until_answering(&mut started)?;
        *process = Some(started);
        Ok(())
    }

    /// Stops the server with SIGSTOP: connections are accepted, but nothing is answered.
    pub fn stop(&self) -> Result<()> {
        self.running(Process::stop)
    }

    /// Continues a stopped server, which then processes the requests that were sent meanwhile.
    pub fn cont(&self) -> Result<()> {
        self.running(Process::cont)
    }

    /// Returns a section of `INFO`: `memory`, `clients`, `stats`, `commandstats`, …
    pub fn info(&self, section: &str) -> Result<Info> {
        let reply = self.control()?.command(&["INFO", section])?;
        Ok(Info::parse(&reply.text()))
    }

    /// Starts recording the commands that the server runs.
    pub fn monitor(&self) -> Result<Monitor> {
        Monitor::start(self)
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Whether the server was started, and neither killed nor stopped since.
    pub(crate) fn is_running(&self) -> bool {
        self.process().as_ref().is_some_and(|process| !process.is_stopped())
    }

    pub(super) fn settings(&self) -> PathBuf {
        self.directory.path().join("server.conf")
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("server.log")
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self, act: impl FnOnce(&mut Process) -> Result<()>) -> Result<()> {
        match &mut *self.process() {
            Some(process) => act(process),
            None => Err(Error::new("the server is not running")),
        }
    }

    fn wait_until_answering(&self, process: &mut Process) -> Result<()> {
        let answered = poll("the server to answer", || {
            // The inner error stops the polling: a server that has ended will not answer.
            if let Err(ended) = process.check_running() {
                return Ok(Err(ended));
            }
            let mut control = self.control()?;
            let info = Info::parse(&control.command(&["INFO", "server"])?.text());
            // Another program may listen on this port, while our server is about to find it taken.
            if info.number("process_id") != Some(process.id().into()) {
                return Err(Error::new("another process answers"));
            }
            control.command(&["PING"]).map(|_| Ok(()))
        });
        answered.and_then(|answered| answered).map_err(|error| {
            let (port, log) = (self.port(), self.log());
            Error::new(format!("{} on port {port}: {error}; its log:\n{log}", self.binary.name()))
        })
    }
}
