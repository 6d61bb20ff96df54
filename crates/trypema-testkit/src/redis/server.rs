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

/// A real server on a loopback port of its own, killed when dropped.
///
/// It keeps nothing on disk unless told to (`set("appendonly", "yes")`). Its methods can be called from any thread.
#[derive(Debug)]
pub struct Server {
    // The process goes before the directory it writes to, and that before the port it listens on.
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

    /// A server with other settings.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// The server that `REDIS_URL` or `REDIS_PORT` names, else one started for this call; for tests that need no more of it.
    pub fn shared() -> Result<Shared> {
        Shared::open()
    }

    /// Where clients connect: `redis://127.0.0.1:port`, with the password if there is one.
    pub fn url(&self) -> String {
        match &self.password {
            Some(password) => self.url_as("", password),
            None => format!("redis://{}", self.addr()),
        }
    }

    /// Where clients connect as a user given to [`ServerBuilder::user`].
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@{}", self.addr())
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// The port it listens on, the same after a restart.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// A new connection to command it through.
    pub fn control(&self) -> Result<Control> {
        Control::open(&self.url())
    }

    /// Kills it, as `kill -9` does; it is gone when this returns.
    pub fn kill_9(&self) -> Result<()> {
        match self.process().take() {
            Some(process) => {
                drop(process);
                Ok(())
            }
            None => Err(Error::new("the server is not running")),
        }
    }

    /// Starts it again on the same port, killing it first if it runs, and waits until it answers.
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

    /// Stops it as SIGSTOP does: connections are accepted, nothing is answered.
    pub fn stop(&self) -> Result<()> {
        self.running(Process::stop)
    }

    /// Lets a stopped server go on; what it was sent meanwhile is then carried out.
    pub fn cont(&self) -> Result<()> {
        self.running(Process::cont)
    }

    /// A section of what it says of itself: `memory`, `clients`, `stats`, `commandstats`, …
    pub fn info(&self, section: &str) -> Result<Info> {
        let reply = self.control()?.command(&["INFO", section])?;
        Ok(Info::parse(&reply.text()))
    }

    /// Watches every command that it runs from now on.
    pub fn monitor(&self) -> Result<Monitor> {
        Monitor::start(self)
    }

    /// All it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Whether it was started, and neither killed nor stopped since.
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
            // Ended is ended: the inner error ends the waiting.
            if let Err(ended) = process.check_running() {
                return Ok(Err(ended));
            }
            let mut control = self.control()?;
            let info = Info::parse(&control.command(&["INFO", "server"])?.text());
            // A stranger may listen on this port, while ours is about to find it taken.
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
