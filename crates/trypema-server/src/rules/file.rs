//! Rules from a file: read at start, read again when it changes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use trypema::rules::{InvalidRules, RuleSet};

use crate::app::App;

/// How often a file is looked at. Looking costs one system call, works on every file system and through the symbolic links that
/// Kubernetes swaps, and misses nothing: that is worth more than hearing of a change half a second earlier.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The rules of a service that was given none.
const DEMONSTRATION: &str = include_str!("../demo.yaml");

/// What tells one version of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    /// Changes with every write, whatever the file's owner says of its age.
    changed: (i64, i64),
    device: u64,
    inode: u64,
}

/// A file of rules; the demonstration rules if there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RulesFile(pub(crate) Option<PathBuf>);

impl RulesFile {
    /// Reads and compiles the rules.
    ///
    /// # Errors
    ///
    /// What is wrong with them, and in which line.
    pub(crate) fn load(&self) -> Result<RuleSet, InvalidRules> {
        match &self.0 {
            None => RuleSet::from_yaml(DEMONSTRATION, "the built-in rules"),
            Some(path) => RuleSet::read(path),
        }
    }

    /// Which version of the file there is now; to be looked at before that is read.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let metadata = fs::metadata(self.0.as_ref()?).ok()?;
        Some(Stamp {
            modified: metadata.modified().ok(),
            length: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

/// Puts rules in force whenever their file is no longer the one that is `known`, or when `asked` to; ends with the task that it is
/// spawned as.
///
/// A file that has just changed may be half written: it is read when it has looked the same twice. What is asked for is read at once.
pub(crate) async fn watch(app: Arc<App>, file: RulesFile, mut known: Option<Stamp>, asked: Arc<Notify>) {
    let mut last_seen = known;
    loop {
        let is_asked = tokio::select! {
            () = asked.notified() => true,
            () = tokio::time::sleep(LOOK_EVERY) => false,
        };
        let seen = look(&file).await;
        let has_settled = seen == last_seen;
        last_seen = seen;
        if is_asked || (seen != known && has_settled) {
            known = seen;
            reload(&app, &file).await;
        }
    }
}

async fn look(file: &RulesFile) -> Option<Stamp> {
    let file = file.clone();
    // A file system that hangs must not hang decisions.
    tokio::task::spawn_blocking(move || file.stamp()).await.unwrap_or(None)
}

async fn reload(app: &App, file: &RulesFile) {
    let file = file.clone();
    match tokio::task::spawn_blocking(move || file.load()).await {
        Ok(Ok(rules)) => {
            let count = rules.len();
            app.replace_rules(rules);
            tracing::info!(rules = count, "new rules are in force");
        }
        Ok(Err(invalid)) => {
            app.rules_refused(&invalid);
            tracing::error!(error = %invalid, "the new rules are invalid; the old ones stay in force");
        }
        Err(_) => tracing::error!("reading the rules was interrupted; the old ones stay in force"),
    }
}
