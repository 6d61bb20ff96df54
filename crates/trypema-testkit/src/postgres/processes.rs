//! The processes of one server: the postmaster, and its children for sessions and background work.
//!
//! Each child leads its own process group, so a signal to a group reaches only one of them. They are found
//! as children of the postmaster, which is stopped first so that it starts no more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::redis::{Error, Process, Result, Watchdog, poll};

/// A shell script for the watchdog, with the effect of dropping [`Processes`].
const ENDING: &str = r#"
    kill -s STOP "$0"
    children=$(grep -ls "^PPid:[[:space:]]*$0\$" /proc/[0-9]*/status | cut -d / -f 3)
    kill -9 $children "$0"
    ipcrm -m "$(sed -n '7s/.* //p' "$1/data/postmaster.pid")"
"#;
const SIGNAL: &str = r#"kill -s "$0" "$@""#;
/// The line of `postmaster.pid` with the key and the id of the shared memory.
const SHARED_MEMORY: usize = 6;
/// The line of `postmaster.pid` that says `ready` once sessions are accepted.
const STATE: usize = 7;

/// All processes of a server. Dropping it kills them and releases their shared memory.
#[derive(Debug)]
pub(super) struct Processes {
    postmaster: Process,
    data: PathBuf,
}

impl Processes {
    /// Starts the postmaster on the directory `data` in `directory`.
    pub(super) fn start(command: &mut Command, directory: &Path, log: &Path) -> Result<Self> {
        let postmaster = Process::start_watched(command, Watchdog { ending: ENDING, directory }, log)?;
        Ok(Self { postmaster, data: directory.join("data") })
    }

    /// Waits until sessions are accepted. Fails if the postmaster ends.
    pub(super) fn wait_until_ready(&mut self) -> Result<()> {
        let ready = poll("the server to be ready", || {
            // The inner error stops the polling: a postmaster that has ended will not become ready.
            if let Err(ended) = self.postmaster.check_running() {
                return Ok(Err(ended));
            }
            let lines = self.lock_file();
            let is_own = lines.first().is_some_and(|line| *line == self.postmaster.id().to_string());
            let is_ready = lines.get(STATE).is_some_and(|line| line.trim_end() == "ready");
            if is_own && is_ready { Ok(Ok(())) } else { Err(Error::new("it is not")) }
        });
        ready.and_then(|ready| ready)
    }

    /// Sends SIGSTOP to all processes: the kernel still accepts connections, but nothing is answered.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.postmaster.stop()?;
        let children = children_of(self.postmaster.id())?;
        signal("STOP", &children);
        poll("the sessions to stop", || {
            let is_at_rest = |id: &u32| state(*id).is_none_or(|state| state == 'T' || has_ended(*id));
            if children.iter().all(is_at_rest) { Ok(()) } else { Err(Error::new("some run")) }
        })
    }

    /// Sends SIGCONT to all processes.
    pub(super) fn cont(&mut self) -> Result<()> {
        signal("CONT", &children_of(self.postmaster.id())?);
        self.postmaster.cont()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.postmaster.is_stopped()
    }

    fn kill(&mut self) -> Result<()> {
        // If the postmaster has ended, it has ended its children before, or they end when they notice.
        if self.postmaster.check_running().is_err() {
            return Ok(());
        }
        self.postmaster.stop()?;
        let mut all = children_of(self.postmaster.id())?;
        all.push(self.postmaster.id());
        signal("KILL", &all);
        poll("the server to be gone", || {
            if all.iter().all(|id| has_ended(*id)) { Ok(()) } else { Err(Error::new("some run")) }
        })
    }

    /// Releases the shared memory of a killed server, and removes the file that names it. Otherwise the
    /// next server might take the file for that of a running one.
    fn release(&self) {
        let lines = self.lock_file();
        let number = lines.get(SHARED_MEMORY).and_then(|line| line.split_whitespace().nth(1));
        if let Some(number) = number {
            let mut ipcrm = Command::new("ipcrm");
            let _ = ipcrm.args(["-m", number]).output();
        }
        let _ = fs::remove_file(self.data.join("postmaster.pid"));
    }

    fn lock_file(&self) -> Vec<String> {
        let text = fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // If killing fails, the postmaster is killed when it is dropped, and its children end when they
        // notice.
        if self.kill().is_ok() {
            self.release();
        }
    }
}

fn children_of(parent: u32) -> Result<Vec<u32>> {
    let entries = fs::read_dir("/proc").map_err(Error::during("looking for the server's processes"))?;
    let all = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parent = parent.to_string();
    Ok(all.filter(|id| status(*id, "PPid:").is_some_and(|of| of == parent)).collect())
}

/// Sends a signal to the processes that still exist.
fn signal(name: &str, processes: &[u32]) {
    let numbers = processes.iter().map(u32::to_string);
    // `kill` reports an error for processes that have just ended, and still signals the others.
    let _ = Command::new("sh").args(["-c", SIGNAL, name]).args(numbers).stderr(Stdio::null()).status();
}

/// Whether a process has ended. A zombie stays listed until its parent or init reaps it.
fn has_ended(process: u32) -> bool {
    state(process).is_none_or(|state| state == 'Z' || state == 'X')
}

/// Returns the state of a process: `R` running, `S` sleeping, `T` stopped, `Z` zombie; `None` if there is
/// no such process.
fn state(process: u32) -> Option<char> {
    status(process, "State:")?.chars().next()
}

fn status(process: u32, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(value.trim().to_owned())
}
