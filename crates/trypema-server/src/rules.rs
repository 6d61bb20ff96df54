//! The sources of rules: a file or a database, and how their changes reach the server.

pub(crate) mod cache;
pub(crate) mod change;
pub(crate) mod database;
pub(crate) mod file;
pub(crate) mod store;

use std::path::PathBuf;
use std::sync::Arc;

use trypema::rules::{RuleSet, RulesFile};

pub(crate) use cache::CACHE_COMMANDS;
pub(crate) use store::CacheChoice;
pub use store::{DatabaseChoice, OpenError};

use self::file::FileRules;
use self::store::RuleStore;
use crate::background_worker::BackgroundWorkers;

/// The source of the rules.
#[derive(Debug, Clone)]
pub enum RulesSource {
    /// The built-in demonstration rules.
    BuiltIn,
    /// A YAML file.
    File(PathBuf),
    /// PostgreSQL.
    Database(DatabaseChoice),
}

/// The rules at start, and the source to watch for changes.
pub(crate) struct LoadedRules {
    pub(crate) rules: RuleSet,
    pub(crate) watched_source: WatchedSource,
    /// The error of the newest rules, if `rules` are older ones.
    pub(crate) refused: Option<String>,
}

/// The source that the rule watcher watches.
#[derive(Debug, Clone)]
pub(crate) enum WatchedSource {
    File(FileRules),
    Database(Arc<RuleStore>),
}

impl RulesSource {
    /// Reads and compiles the rules, those of a database on `workers`.
    ///
    /// # Errors
    ///
    /// The rules are invalid, or cannot be read.
    pub(crate) async fn open(&self, workers: &Arc<BackgroundWorkers>) -> Result<LoadedRules, OpenError> {
        let mut file = match self {
            Self::BuiltIn => FileRules(None),
            Self::File(path) => FileRules(Some(RulesFile::new(path))),
            Self::Database(choice) => return RuleStore::open(choice, Arc::clone(workers)).await,
        };
        Ok(LoadedRules { rules: file.read()?, watched_source: WatchedSource::File(file), refused: None })
    }
}
