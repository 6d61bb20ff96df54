//! A child process that cannot outlive the test.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::wait::poll;
use super::{Error, Result};

/// The watchdog's script. It waits for the end of its input, which comes when the test's process ends, for
/// whatever reason. It ignores signals to the whole process group, so that it can finish its work.
const WATCHDOG: &str = r#"trap "" HUP INT TERM; read _; eval "$2"; rm -rf -- "$1""#;
const KILL: &str = r#"kill -9 "$0""#;
const SIGNAL: &str = r#"kill -s "$0" "$1""#;

/// The actions of a watchdog when the test is killed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watchdog<'a> {
    /// A shell script that ends the server. `$0` is the process id, `$1` the directory.
    pub(crate) ending: &'static str,
    /// The directory to remove afterwards.
    pub(crate) directory: &'a Path,
}

/// A running server, killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    server: Child,
    /// Kills the server if this process is killed and cannot drop it.
    watchdog: Child,
    is_stopped: bool,
}

impl Process {
    /// Starts `command` in `directory`, which the watchdog removes. The output is appended to the file
    /// `log`.
    pub(crate) fn start(command: &mut Command, directory: &Path, log: &Path) -> Result<Self> {
        Self::start_watched(command, Watchdog { ending: KILL, directory }, log)
    }

    /// Starts a server that needs more than a SIGKILL to end.
    pub(crate) fn start_watched(command: &mut Command, watched: Watchdog<'_>, log: &Path) -> Result<Self> {
        let Watchdog { ending, directory } = watched;
        let program = command.get_program().to_owned();
        let failed = || Error::during(format!("starting {}", program.display()));
        let output = File::options().create(true).append(true).open(log).map_err(failed())?;
        let errors = output.try_clone().map_err(failed())?;
        command.current_dir(directory).stdin(Stdio::null()).stdout(output).stderr(errors);
        let mut server = command.spawn().map_err(failed())?;
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", WATCHDOG, &server.id().to_string()]).arg(directory).arg(ending);
        watchdog.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        match watchdog.spawn() {
            Ok(watchdog) => Ok(Self { server, watchdog, is_stopped: false }),
            Err(error) => {
                let _ = server.kill().and_then(|()| server.wait());
                Err(Error::new(format!("starting a watchdog: {error}")))
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.server.id()
    }

    /// Fails if the server has ended.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        match self.server.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Error::new(format!("the server ended with {status}"))),
            Err(error) => Err(Error::new(format!("the server's state is unknown: {error}"))),
        }
    }

    /// Sends SIGSTOP: the server does nothing, but the kernel still accepts connections for it.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.signal("STOP")?;
        self.is_stopped = true;
        poll(
            "the server to stop",
            || if self.has_come_to_rest() { Ok(()) } else { Err(Error::new("it runs")) },
        )
    }

    /// Sends SIGCONT: the server continues.
    pub(crate) fn cont(&mut self) -> Result<()> {
        self.signal("CONT")?;
        self.is_stopped = false;
        Ok(())
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Returns the exit status. Fails while the process runs.
    pub(crate) fn ended(&mut self) -> Result<ExitStatus> {
        match self.server.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err(Error::new("it runs")),
            Err(error) => Err(Error::new(format!("its state is unknown: {error}"))),
        }
    }

    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        let mut kill = Command::new("sh");
        match kill.args(["-c", SIGNAL, name, &self.id().to_string()]).status() {
            Ok(status) if status.success() => Ok(()),
            outcome => Err(Error::new(format!("sending {name} to the server gave {outcome:?}"))),
        }
    }

    /// Whether SIGSTOP has taken effect, which takes a moment. Without `/proc`, this is assumed.
    fn has_come_to_rest(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id()));
        status.map_or(true, |status| status.lines().any(|line| line.starts_with("State:\tT")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Kill the watchdog first: once the server is reaped, its process id may be reused.
        for child in [&mut self.watchdog, &mut self.server] {
            // This fails only if the process has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
