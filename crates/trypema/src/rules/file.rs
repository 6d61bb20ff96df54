//! A file of rules that changes: notices it, and reads it when it is whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::problem::InvalidRules;
use super::set::RuleSet;

/// A file of rules that may change.
///
/// [`Engine::watch_file`](super::Engine::watch_file) watches it on a thread of its own. To watch it on your own thread or runtime, call
/// [`poll`](Self::poll) every [`POLL_INTERVAL`](Self::POLL_INTERVAL).
///
/// A poll asks the file system for the file's metadata, and works on every file system: for files that are written in place, replaced by
/// renaming, deleted and created again, and reached through symbolic links that are swapped, as Kubernetes does.
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
    /// The version that was there at the last poll.
    seen: Option<Version>,
}

/// Tells one version of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    modified: Option<SystemTime>,
    length: u64,
    #[cfg(unix)]
    unix: UnixVersion,
}

/// Details that only Unix has. The change time moves with every write, whatever the owner sets as the modification time; device and inode
/// tell a file from the one that replaced it.
#[cfg(unix)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UnixVersion {
    changed_seconds: i64,
    changed_nanoseconds: i64,
    device: u64,
    inode: u64,
}

impl RulesFile {
    /// How often to [`poll`](Self::poll): a change is in force after two polls at most. A poll is one system call.
    pub const POLL_INTERVAL: Duration = Duration::from_millis(500);

    /// A file that has not been read yet. Does not touch the file system.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), read: None, seen: None }
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads and compiles the file now, whether or not it has changed.
    ///
    /// # Errors
    ///
    /// Those of [`RuleSet::read`].
    pub fn read(&mut self) -> Result<RuleSet, InvalidRules> {
        // Before reading: a change while the file is read is then noticed at the next poll.
        self.seen = self.version();
        self.read = self.seen;
        RuleSet::read(&self.path)
    }

    /// Reads and compiles the file if it has changed since it was read, and looks the same as at the last poll: a file that is being written
    /// is left alone until it is whole. A file that is gone is a change, too, and gives an error once.
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
