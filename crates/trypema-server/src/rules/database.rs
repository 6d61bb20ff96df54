//! Rules in PostgreSQL: connecting, reading, writing. It is asked by whoever changes rules, and by one task that follows them;
//! never by whoever decides.

mod adopt;
mod editing;
mod history;
mod migrate;
mod numbers;
mod row;
mod stored;
mod write;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnectOptions, PgDatabaseError, PgListener, PgPoolOptions};
use sqlx::query::Query;
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, Postgres, SqlSafeStr};
use thiserror::Error;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

pub(crate) use editing::{EditError, Edited, Reach, Snapshot, Wanted};
pub(crate) use history::{HistoryEntry, NoSuchRevision, Page};
pub(crate) use migrate::Migrated;
pub(crate) use row::ListName;
pub(crate) use stored::{Stored, Unusable, Version};

use crate::background_worker::{NotDone, Worker};
use crate::secret::Secret;

/// What a change is announced on.
const CHANNEL: &str = "trypema_rules";
/// Connections at a time for those who look at rules.
const LOOKS: usize = 3;
/// The same for those who change them: they wait for each other anyway.
const CHANGES: usize = 2;
/// How long anything may take: somebody waits for it, or the next poll does.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a change may take: thousands of rules are written in some seconds.
const UNTIL_WRITTEN: Duration = Duration::from_secs(25);
/// How long a connection may take.
const UNTIL_CONNECTED: Duration = Duration::from_secs(5);
/// How often a connection that only listens is asked whether it lives.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// How long a connection that was left may take to answer before another is made.
const UNTIL_ALIVE: Duration = Duration::from_secs(1);
/// Whoever is not waited for any more must not go on in the server: what waits for a lock there does not notice.
const GIVE_UP: &str =
    "SET statement_timeout = '25s'; SET lock_timeout = '5s'; SET idle_in_transaction_session_timeout = '30s'";

/// Where rules are stored.
#[derive(Debug)]
pub(crate) struct Database {
    address: Address,
    looks: Semaphore,
    changes: Semaphore,
    /// Whoever follows what is stored never waits behind those who look at it.
    following: Semaphore,
    /// A connection that nobody uses at the moment.
    idle: Mutex<Option<PgConnection>>,
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
    /// A table of the same name is not the documented one.
    #[error(
        "the database has a table rate_limit_rules that cannot be adopted: {0}. Nothing was changed: rename that table, or use \
         another database or schema"
    )]
    UnrelatedTable(String),
    /// It does not answer.
    #[error("the database does not answer within {PATIENCE:?}")]
    Silent,
    /// Others are before us.
    #[error("too many look at the rules or change them at once")]
    Crowded,
    /// It refuses, or cannot be reached.
    #[error("the database: {}", said(.0))]
    Failed(#[from] sqlx::Error),
    /// Its tables could not be made.
    #[error("migrating the database: {}", why_not_migrated(.0))]
    Migration(#[from] sqlx::migrate::MigrateError),
}

impl DatabaseError {
    /// Whether trying again later cannot help.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Address(_) | Self::NotMigrated | Self::UnrelatedTable(_) => true,
            Self::File { .. } | Self::Silent | Self::Crowded | Self::Failed(_) | Self::Migration(_) => false,
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
            Self::Crowded => return "too many look at the rules or change them at once",
            Self::Failed(sqlx::Error::Database(error)) => error.code(),
            _ => None,
        };
        match code.as_deref() {
            Some("55P03" | "40P01" | "40001") => {
                "somebody else is changing the rules at the moment: nothing was changed"
            }
            Some("42501") => "the database does not let the service do this: its role lacks a right",
            Some("25006") => "the database is read-only",
            _ => "the database cannot be asked: the rules in force stay as they are",
        }
    }
}

impl From<NotDone> for DatabaseError {
    fn from(not_done: NotDone) -> Self {
        match not_done {
            NotDone::Interrupted => Self::Silent,
            NotDone::Busy => Self::Crowded,
        }
    }
}

/// What it says itself, without where in its own source it says so.
fn said(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => error.message().to_owned(),
        other => other.to_string(),
    }
}

/// The reason why a migration failed, with the object that the database names.
fn why_not_migrated(error: &sqlx::migrate::MigrateError) -> String {
    let sqlx::migrate::MigrateError::ExecuteMigration(error, version) = error else {
        return error.to_string();
    };
    let detail = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    let detail = detail.and_then(PgDatabaseError::detail).map(|detail| format!(" ({detail})"));
    format!("{}{}; nothing was changed (migration {version})", said(error), detail.unwrap_or_default())
}

/// A connection, and the right to one.
#[derive(Debug)]
struct Session<'d> {
    database: &'d Database,
    connection: PgConnection,
    purpose: Purpose,
    _permit: SemaphorePermit<'d>,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Looking,
    Changing,
    Following,
}

impl Purpose {
    /// The worker that does what takes long.
    fn worker(self) -> Worker {
        match self {
            Self::Looking => Worker::Reads,
            Self::Changing | Self::Following => Worker::Changes,
        }
    }
}

impl Session<'_> {
    /// Leaves the connection to the next one. Who does not come here gives it up, with whatever it was doing.
    fn rest(self) {
        *self.database.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.connection);
    }

    /// The same after a transaction that is not wanted any more.
    async fn roll_back(mut self) {
        let rolled_back = async { Ok(query("ROLLBACK").execute(&mut self.connection).await?) };
        if within(rolled_back).await.is_ok() {
            self.rest();
        }
    }
}

impl Database {
    /// Where rules are stored. Nothing is reached for yet.
    ///
    /// # Errors
    ///
    /// What is wrong with the address, if it is given.
    pub(crate) fn new(address: Address) -> Result<Self, DatabaseError> {
        address.options()?;
        let (looks, changes, following) = (Semaphore::new(LOOKS), Semaphore::new(CHANGES), Semaphore::new(1));
        Ok(Self { address, looks, changes, following, idle: Mutex::new(None) })
    }

    /// A connection, within a while.
    async fn session(&self, purpose: Purpose) -> Result<Session<'_>, DatabaseError> {
        let turns = match purpose {
            Purpose::Looking => &self.looks,
            Purpose::Changing => &self.changes,
            Purpose::Following => &self.following,
        };
        let permit = timeout(PATIENCE, turns.acquire()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or(DatabaseError::Crowded)?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        let connection = match alive(idle).await {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(Session { database: self, connection, purpose, _permit: permit })
    }

    async fn connect(&self) -> Result<PgConnection, DatabaseError> {
        let connecting = async {
            let mut connection = self.address.options()?.connect().await?;
            sqlx::raw_sql(GIVE_UP).execute(&mut connection).await?;
            Ok(connection)
        };
        timeout(UNTIL_CONNECTED, connecting).await.unwrap_or(Err(DatabaseError::Silent))
    }

    /// Calls `heard` for every change that is announced, and once at the start; ends when the connection does.
    ///
    /// # Errors
    ///
    /// Why nothing can be heard.
    pub(crate) async fn listen(&self, heard: impl Fn()) -> Result<(), DatabaseError> {
        let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool = pool.acquire_timeout(UNTIL_CONNECTED).connect_lazy_with(self.address.options()?);
        let mut listener = within(async {
            let mut listener = PgListener::connect_with(&pool).await?;
            // Whoever listens wants to know that something may have been missed.
            listener.eager_reconnect(false);
            listener.listen(CHANNEL).await?;
            Ok(listener)
        })
        .await?;
        heard();
        loop {
            match timeout(SIGN_OF_LIFE, listener.try_recv()).await {
                Ok(Ok(Some(_))) => heard(),
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(error)) => return Err(error.into()),
                // A connection that died silently says nothing, as one that has nothing to say.
                Err(_) => {
                    let alive = async { Ok(listener.execute("SELECT 1").await?) };
                    within(alive).await?;
                }
            }
        }
    }
}

/// A connection that was left, if it is still one: the server may have been restarted, or a firewall have forgotten it.
async fn alive(idle: Option<PgConnection>) -> Option<PgConnection> {
    let mut connection = idle?;
    let answer = timeout(UNTIL_ALIVE, connection.ping()).await;
    answer.is_ok_and(|answer| answer.is_ok()).then_some(connection)
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
