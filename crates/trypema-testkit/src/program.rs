//! Any program as a server of a test: `trypema` itself, nginx, Caddy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::redis::{Directory, Port, Process, Result, poll};

/// A running program with its own directory, killed when dropped, even if the test itself is killed.
#[derive(Debug)]
pub struct Program {
    // Fields are dropped in order: the process before the directory it writes to.
    process: Process,
    log: PathBuf,
    directory: Directory,
}

impl Program {
    /// Starts the command that `command` creates for an empty directory. The program's output goes to its
    /// log.
    pub fn start(command: impl FnOnce(&Path) -> Command) -> Result<Self> {
        let directory = Directory::create()?;
        let log = directory.path().join("log");
        let process = Process::start(&mut command(directory.path()), directory.path(), &log)?;
        Ok(Self { process, log, directory })
    }

    /// Returns the program's directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the program's output so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for a line of the log that contains `text`, and returns it. Fails if the program ends before.
    pub fn line(&mut self, text: &str) -> Result<String> {
        let Self { process, log, .. } = self;
        let what = format!("a line with {text:?}");
        poll(&what, || {
            let printed = fs::read_to_string(&*log).unwrap_or_default();
            // The last line may be incomplete.
            let mut lines = printed.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            match lines.find(|line| line.contains(text)) {
                Some(line) => Ok(line.trim_end().to_owned()),
                None => {
                    process.check_running().map_err(crate::redis::Error::during(&printed))?;
                    Err(crate::redis::Error::new(printed))
                }
            }
        })
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal: `TERM`, `HUP`, `KILL`.
    pub fn signal(&self, name: &str) -> Result<()> {
        self.process.signal(name)
    }

    /// Waits for the program to end, and returns its exit status.
    pub fn end(&mut self) -> Result<ExitStatus> {
        let process = &mut self.process;
        poll("the program to end", || process.ended())
    }
}

/// A port that no other server of the tests uses or will choose.
#[derive(Debug)]
pub struct FreePort(Port);

impl FreePort {
    /// Returns a free port.
    pub fn any() -> Result<Self> {
        Port::any().map(Self)
    }

    /// Returns the port number.
    pub fn number(&self) -> u16 {
        self.0.number()
    }
}
