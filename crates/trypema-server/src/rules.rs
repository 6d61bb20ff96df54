//! The sources of rules: a file or a database, and how their changes reach the server.

pub(crate) mod book;
pub(crate) mod cache;
pub(crate) mod change;
pub(crate) mod database;
pub(crate) mod file;

use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;
use trypema::rules::{InvalidRules, RuleSet, RulesFile};

pub(crate) use book::CacheChoice;
pub use book::{DatabaseChoice, OpenError};
pub use database::Address;

use self::book::{Book, Opened};
use self::file::Source;

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
pub(crate) struct Start {
    pub(crate) rules: RuleSet,
    pub(crate) following: Following,
    /// The error of the newest rules, if `rules` are older ones.
    pub(crate) refused: Option<String>,
}

/// The source that the rule watcher watches.
#[derive(Debug, Clone)]
pub(crate) enum Following {
    File(Source),
    Book(Arc<Book>),
}

/// The reason why the rules could not be read at start.
#[derive(Debug, Error)]
pub(crate) enum SourceError {
    #[error(transparent)]
    File(#[from] InvalidRules),
    #[error(transparent)]
    Database(#[from] OpenError),
}

impl RulesSource {
    /// Reads and compiles the rules.
    ///
    /// # Errors
    ///
    /// The rules are invalid, or cannot be read.
    pub(crate) async fn open(&self) -> Result<Start, SourceError> {
        let mut file = match self {
            Self::BuiltIn => Source(None),
            Self::File(path) => Source(Some(RulesFile::new(path))),
            Self::Database(choice) => {
                let Opened { book, rules, refused } = Book::open(choice).await?;
                return Ok(Start { rules, following: Following::Book(Arc::new(book)), refused });
            }
        };
        Ok(Start { rules: file.read()?, following: Following::File(file), refused: None })
    }
}
