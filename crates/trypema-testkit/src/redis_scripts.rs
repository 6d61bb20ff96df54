//! The Lua scripts of earlier versions, in `testdata/redis-scripts`: a directory for each version, a file
//! for each script. Tests of rolling upgrades run them beside the current scripts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use trypema::redis::script_sources;

use crate::redis::{Control, FaultProxy, Result, Rewrite, Server};

/// The scripts of one earlier version.
#[derive(Debug)]
pub struct ArchivedVersion {
    directory: PathBuf,
}

impl ArchivedVersion {
    /// Returns all archived versions.
    pub fn all() -> io::Result<Vec<Self>> {
        let paths = fs::read_dir(root())?.map(|entry| entry.map(|entry| entry.path()));
        let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        let directories = paths.into_iter().filter(|path| path.is_dir());
        Ok(directories.map(|directory| Self { directory }).collect())
    }

    /// Starts a proxy through which current clients run this version's scripts on `server`. The format of
    /// requests has not changed since this version. When it does, this proxy has to translate requests as
    /// well.
    pub fn proxy(&self, server: &Server) -> Result<FaultProxy> {
        let mut control = server.control()?;
        let mut rewrites = Vec::new();
        for script in script_sources() {
            if let Ok(archived) = fs::read_to_string(file(&self.directory, script.name)) {
                let from = digest(&mut control, &script.source)?;
                let to = digest(&mut control, &archived)?;
                rewrites.push(Rewrite { from, to });
            }
        }
        FaultProxy::rewriting(server.addr(), rewrites)
    }
}

/// Archives the current scripts as `version`.
pub fn archive(version: &str) -> io::Result<()> {
    let directory = root().join(version);
    fs::create_dir_all(&directory)?;
    script_sources().iter().try_for_each(|script| fs::write(file(&directory, script.name), &script.source))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/redis-scripts")
}

fn file(directory: &Path, script: &str) -> PathBuf {
    directory.join(script).with_extension("lua")
}

/// Loads a script into the server, and returns its digest.
fn digest(control: &mut Control, source: &str) -> Result<Vec<u8>> {
    Ok(control.command(&["SCRIPT", "LOAD", source])?.bytes().to_vec())
}
