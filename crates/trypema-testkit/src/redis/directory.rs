//! A separate directory for each server.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Error, Result};

/// A directory that is created empty, and removed with its contents when dropped.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn create() -> Result<Self> {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trypema-{}-{number}", std::process::id()));
        // A killed process with the same id may have left one behind.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).map_err(Error::during(format!("creating {}", path.display())))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Nobody could handle the error, and only a few kilobytes stay in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
