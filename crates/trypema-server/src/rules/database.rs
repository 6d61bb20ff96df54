//! Rules in PostgreSQL: connecting, reading, writing. It is asked by whoever changes rules, and by one task that follows them;
//! never by whoever decides.

mod editing;
mod history;
mod migrate;
mod numbers;
mod row;
mod stored;
mod write;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::query::Query;
use sqlx::{ConnectOptions, PgConnection, Postgres, SqlSafeStr};
use thiserror::Error;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

pub(crate) use editing::{EditError, Edited, Reach, Snapshot};
pub(crate) use history::{HistoryEntry, NoSuchRevision, Page};
pub(crate) use row::ListName;
pub(crate) use stored::{Reader, Stored, Unusable, Version};

use crate::secret::Secret;

/// What a change is announced on.
const CHANNEL: &str = "trypema_rules";
/// Connections at a time for those who change and look at rules: more would wait for each other anyway.
const SESSIONS: usize = 4;
/// How long anything may take: somebody waits for it, or the next poll does.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a change may take: thousands of rules are written in some seconds.
const UNTIL_WRITTEN: Duration = Duration::from_secs(25);
/// How long a connection may take.
const UNTIL_CONNECTED: Duration = Duration::from_secs(5);
/// Whoever is not waited for any more must not go on in the server: what waits for a lock there does not notice.
const GIVE_UP: &str =
    "SET statement_timeout = '25s'; SET lock_timeout = '5s'; SET idle_in_transaction_session_timeout = '30s'";

/// Where rules are stored.
#[derive(Debug)]
pub(crate) struct Database {
    address: Address,
    sessions: Semaphore,
}

/// How the database is reached.
#[derive(Debug, Clone)]
pub enum Address {
    /// By this address.
    Given(Secret),
    /// By what a file holds: it is read again for every connection, as passwords change.
    InFile(PathBuf),
}

/// Why the database could not be used.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// The address.
    #[error("database_url: {0}")]
    Address(String),
    /// The file that has the address.
    #[error("database_url: {}: {error}", .file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The tables are not there, or older than this program.
    #[error("the database has no tables of this version: run `trypema rules migrate`")]
    NotMigrated,
    /// It does not answer.
    #[error("the database does not answer within {PATIENCE:?}")]
    Silent,
    /// It refuses, or cannot be reached.
    #[error("the database: {0}")]
    Failed(#[from] sqlx::Error),
    /// Its tables could not be made.
    #[error("migrating the database: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
}

impl DatabaseError {
    /// Whether trying again later cannot help.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Address(_) | Self::NotMigrated => true,
            Self::File { .. } | Self::Silent | Self::Failed(_) | Self::Migration(_) => false,
        }
    }

    /// What the constraint says that a change was refused by, if one did.
    pub(crate) fn refusal(&self) -> Option<String> {
        let Self::Failed(sqlx::Error::Database(error)) = self else { return None };
        match error.code().as_deref() {
            // A check, a key that is there twice, one that points nowhere, a number or a text that does not fit.
            Some("23514" | "23505" | "23503" | "22003" | "22001" | "22P05" | "22021") => {
                Some(error.message().to_owned())
            }
            _ => None,
        }
    }

    /// What somebody who has no access to the database may know of it.
    pub(crate) fn told(&self) -> &'static str {
        let code = match self {
            Self::NotMigrated => return "the tables are missing: run `trypema rules migrate`",
            Self::Failed(sqlx::Error::Database(error)) => error.code(),
            _ => None,
        };
        match code.as_deref() {
            Some("55P03" | "40P01" | "40001" | "57014") => {
                "somebody else is changing the rules at the moment: nothing was changed"
            }
            Some("42501") => "the database does not let the service do this: its role lacks a right",
            Some("25006") => "the database is read-only",
            _ => "the database cannot be asked: the rules in force stay as they are",
        }
    }
}

/// A connection, and the right to one.
#[derive(Debug)]
pub(crate) struct Session<'d> {
    connection: PgConnection,
    _permit: SemaphorePermit<'d>,
}

impl Database {
    /// Where rules are stored. Nothing is reached for yet.
    ///
    /// # Errors
    ///
    /// What is wrong with the address, if it is given.
    pub(crate) fn new(address: Address) -> Result<Self, DatabaseError> {
        address.options()?;
        Ok(Self { address, sessions: Semaphore::new(SESSIONS) })
    }

    /// A new connection, within a while.
    async fn session(&self) -> Result<Session<'_>, DatabaseError> {
        let permit = timeout(PATIENCE, self.sessions.acquire()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or(DatabaseError::Silent)?;
        Ok(Session { connection: self.connect().await?, _permit: permit })
    }

    async fn connect(&self) -> Result<PgConnection, DatabaseError> {
        let connecting = async {
            let mut connection = self.address.options()?.connect().await?;
            sqlx::raw_sql(GIVE_UP).execute(&mut connection).await?;
            Ok(connection)
        };
        timeout(UNTIL_CONNECTED, connecting).await.unwrap_or(Err(DatabaseError::Silent))
    }

    /// What hears of changes, from now on.
    pub(crate) async fn listen(&self) -> Result<PgListener, DatabaseError> {
        let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool = pool.acquire_timeout(PATIENCE).connect_lazy_with(self.address.options()?);
        within(async {
            let mut listener = PgListener::connect_with(&pool).await?;
            // Whoever listens wants to know that something may have been missed.
            listener.eager_reconnect(false);
            listener.listen(CHANNEL).await?;
            Ok(listener)
        })
        .await
    }
}

/// A query without a name in the server, so that those who share its connections do not meet.
fn query<'q>(text: impl SqlSafeStr) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(text).persistent(false)
}

/// Does something with the database, unless that takes too long. What was begun is then given up with its connection.
async fn within<T>(work: impl Future<Output = Result<T, DatabaseError>>) -> Result<T, DatabaseError> {
    timeout(PATIENCE, work).await.unwrap_or(Err(DatabaseError::Silent))
}

impl Address {
    fn options(&self) -> Result<PgConnectOptions, DatabaseError> {
        let text = match self {
            Self::Given(address) => address.clone(),
            Self::InFile(file) => {
                Secret::read(file).map_err(|error| DatabaseError::File { file: file.clone(), error })?
            }
        };
        let text = text.reveal();
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(DatabaseError::Address("need postgres://user@host/database".to_owned()));
        }
        // The error may repeat a part of the address, and so of the password.
        let options = PgConnectOptions::from_str(text).map_err(|_| {
            DatabaseError::Address("cannot be understood: need postgres://user@host/database".to_owned())
        })?;
        Ok(options
            .application_name("trypema")
            .extra_float_digits(None)
            .statement_cache_capacity(0)
            .disable_statement_logging())
    }
}
