//! Any program as a server of a test: `trypema` itself, nginx, Caddy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::redis::{Directory, Port, Process, Result, poll};

/// A running program with a directory of its own, killed when dropped, also when the test is killed.
#[derive(Debug)]
pub struct Program {
    // The process goes before the directory it writes to.
    process: Process,
    log: PathBuf,
    directory: Directory,
}

impl Program {
    /// Starts what `command` makes of the directory, which is empty and the program's own. What it prints goes to its log.
    pub fn start(command: impl FnOnce(&Path) -> Command) -> Result<Self> {
        let directory = Directory::create()?;
        let log = directory.path().join("log");
        let process = Process::start(&mut command(directory.path()), directory.path(), &log)?;
        Ok(Self { process, log, directory })
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Everything it has printed.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The first line of its log with `text` in it, waited for while it runs.
    pub fn line(&mut self, text: &str) -> Result<String> {
        let Self { process, log, .. } = self;
        let what = format!("a line with {text:?}");
        poll(&what, || {
            let printed = fs::read_to_string(&*log).unwrap_or_default();
            // The last line may be half written.
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

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal: `TERM`, `HUP`, `KILL`.
    pub fn signal(&self, name: &str) -> Result<()> {
        self.process.signal(name)
    }

    /// How it ended, waited for.
    pub fn end(&mut self) -> Result<ExitStatus> {
        let process = &mut self.process;
        poll("the program to end", || process.ended())
    }
}

/// A port that no other server of the tests has or will take.
#[derive(Debug)]
pub struct FreePort(Port);

impl FreePort {
    /// Some port.
    pub fn any() -> Result<Self> {
        Port::any().map(Self)
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.0.number()
    }
}
