//! Where rules come from: a file, or a database; and how they change while everything runs.

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

/// Where rules come from.
#[derive(Debug, Clone)]
pub enum RulesSource {
    /// The demonstration rules.
    BuiltIn,
    /// A file in YAML.
    File(PathBuf),
    /// PostgreSQL.
    Database(DatabaseChoice),
}

/// Rules to start with, and what there is to follow.
pub(crate) struct Start {
    pub(crate) rules: RuleSet,
    pub(crate) following: Following,
    /// What is wrong with the newest rules, if these are older ones.
    pub(crate) refused: Option<String>,
}

/// What is followed: rules change there.
#[derive(Debug, Clone)]
pub(crate) enum Following {
    File(Source),
    Book(Arc<Book>),
}

/// Why rules could not be read at start.
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
    /// What is wrong with them, or that they cannot be read.
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
