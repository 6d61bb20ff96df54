//! A rules file that may change: detects changes, and reads the file once it is complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::problem::InvalidRules;
use super::set::RuleSet;

/// A rules file that may change.
///
/// [`Engine::watch_file`](super::Engine::watch_file) watches it on a dedicated thread. To watch it on your
/// own thread or runtime, call [`poll`](Self::poll) every [`POLL_INTERVAL`](Self::POLL_INTERVAL).
///
/// A poll compares the file's metadata, which works on every file system. It detects files that are written
/// in place, replaced by renaming, deleted and created again, or reached through a symbolic link that
/// changes, as in a Kubernetes volume.
///
/// ```
/// use trypema::rules::RulesFile;
///
/// # let path = std::env::temp_dir().join(format!("trypema-rules-file-{}.yaml", std::process::id()));
/// # std::fs::write(&path, "rules: []")?;
/// let mut file = RulesFile::new(&path);
/// let rules = file.read()?;
/// assert!(file.poll().is_none(), "nothing has changed");
///
/// std::fs::write(&path, "rules:\n  - {id: all, scope: global, strategy: {fixed_window: {limit: 5, window: 1s}}}")?;
/// assert!(file.poll().is_none(), "it may still be written");
/// assert_eq!(file.poll().expect("it looked the same twice")?.len(), 1);
/// # std::fs::remove_file(&path)?;
/// # let _ = rules;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct RulesFile {
    path: PathBuf,
    /// The version that was read last.
    read: Option<Version>,
    /// The version at the last poll.
    seen: Option<Version>,
}

/// The metadata that distinguishes one version of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    modified: Option<SystemTime>,
    length: u64,
    #[cfg(unix)]
    unix: UnixVersion,
}

/// Metadata that only Unix provides. The change time is updated by every write, even if the modification time
/// is set back. The device and the inode distinguish a file from one that replaced it.
#[cfg(unix)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UnixVersion {
    changed_seconds: i64,
    changed_nanoseconds: i64,
    device: u64,
    inode: u64,
}

impl RulesFile {
    /// The recommended interval between two [`poll`](Self::poll)s. A change takes effect after at most two
    /// polls. A poll is one system call.
    pub const POLL_INTERVAL: Duration = Duration::from_millis(500);

    /// Creates a file that has not been read yet. Does not access the file system.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), read: None, seen: None }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads and compiles the file now, whether or not it has changed.
    ///
    /// # Errors
    ///
    /// The same as [`RuleSet::read`].
    pub fn read(&mut self) -> Result<RuleSet, InvalidRules> {
        // Taken before reading: if the file changes while it is read, the next poll notices.
        self.seen = self.version();
        self.read = self.seen;
        RuleSet::read(&self.path)
    }

    /// Reads and compiles the file if it has changed since it was read, and if it has not changed since the
    /// last poll. The second condition leaves a file alone while it is being written. Deleting the file is
    /// also a change, and gives one error.
    pub fn poll(&mut self) -> Option<Result<RuleSet, InvalidRules>> {
        let now = self.version();
        let has_settled = now == self.seen;
        self.seen = now;
        (has_settled && now != self.read).then(|| self.read())
    }

    fn version(&self) -> Option<Version> {
        let metadata = fs::metadata(&self.path).ok()?;
        Some(Version {
            modified: metadata.modified().ok(),
            length: metadata.len(),
            #[cfg(unix)]
            unix: UnixVersion::of(&metadata),
        })
    }
}

#[cfg(unix)]
impl UnixVersion {
    fn of(metadata: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self {
            changed_seconds: metadata.ctime(),
            changed_nanoseconds: metadata.ctime_nsec(),
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}
