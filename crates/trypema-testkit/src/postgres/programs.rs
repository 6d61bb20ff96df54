//! The location of PostgreSQL's programs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::redis::{Error, Result, on_path};

/// The directory of all versions on Debian. On the `PATH` Debian has only `psql`, behind a slow wrapper.
const VERSIONS: &str = "/usr/lib/postgresql";
const NEEDED: [&str; 3] = ["initdb", "postgres", "psql"];

/// A directory that contains all needed programs.
#[derive(Debug)]
pub(super) struct Programs(PathBuf);

impl Programs {
    /// Finds the programs of the highest version that Debian has installed, otherwise those on the `PATH`.
    pub(super) fn find() -> Result<Self> {
        let on_path = || on_path("initdb")?.canonicalize().ok()?.parent().map(PathBuf::from);
        match installed().or_else(on_path).filter(|directory| is_complete(directory)) {
            Some(directory) => Ok(Self(directory)),
            None => Err(Error::new("PostgreSQL is not installed: `apt-get install postgresql`")),
        }
    }

    /// Creates a command for a program, without environment variables that PostgreSQL reads.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.0.join(program));
        let misleading = env::vars_os().map(|(name, _)| name);
        for name in misleading.filter(|name| name.as_encoded_bytes().starts_with(b"PG")) {
            command.env_remove(name);
        }
        // Tests read the messages, so they must be in English.
        command.env("LC_ALL", "C");
        command
    }

    /// Returns the version, for example `15.18`.
    pub(super) fn version(&self) -> Result<String> {
        let said = output(self.command("postgres").arg("--version"))?;
        match said.split_whitespace().nth(2) {
            Some(version) => Ok(version.to_owned()),
            None => Err(Error::new(format!("postgres says no version: {said}"))),
        }
    }
}

/// Runs a command and returns its output. If it fails, the error contains its error messages.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().map_err(Error::during(&program))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::new(format!("{program} ended with {}: {}", output.status, said.trim_end())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
}

fn installed() -> Option<PathBuf> {
    let entries = fs::read_dir(VERSIONS).ok()?.flatten();
    let versions = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let directories = versions.map(|version| (version, format!("{VERSIONS}/{version}/bin").into()));
    let complete = directories.filter(|(_, directory): &(u32, PathBuf)| is_complete(directory));
    complete.max().map(|(_, directory)| directory)
}

fn is_complete(directory: &Path) -> bool {
    NEEDED.iter().all(|program| directory.join(program).is_file())
}
