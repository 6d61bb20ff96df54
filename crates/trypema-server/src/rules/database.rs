//! Rules in PostgreSQL: connecting, reading, writing. Only the administration API and the rule watcher use
//! the database; decisions never do.

mod adopt;
mod check;
mod editing;
mod history;
mod migrate;
mod row;
mod stored;
mod write;

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnectOptions, PgDatabaseError, PgListener, PgPoolOptions};
use sqlx::query::Query;
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, Postgres, SqlSafeStr};
use thiserror::Error;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

pub(crate) use check::{CheckedRules, check};
pub(crate) use editing::{EditError, EditResult, EditScope, ProposedRules, Snapshot};
pub(crate) use history::{HistoryEntry, NoSuchRevision, Page};
pub(crate) use migrate::Migrated;
pub(crate) use stored::{InvalidStoredRules, StoredRules, Version};

use crate::background_worker::{BackgroundWorkers, Worker, WorkerError};
use crate::secret::SecretSource;

/// The channel of `NOTIFY` that announces changes.
const CHANNEL: &str = "trypema_rules";
/// The number of connections for readers.
const READERS: usize = 3;
/// The number of connections for changes. More would not help, because changes are serialised anyway.
const WRITERS: usize = 2;
/// The timeout of a query: a request or the next poll waits for it.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of writing a change: thousands of rules take some seconds.
const WRITE_TIMEOUT: Duration = Duration::from_secs(25);
/// The timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which an idle listening connection is checked.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// The timeout of the ping that checks an idle connection before it is reused.
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeouts within PostgreSQL. A query that waits for a lock does not notice that its client has given up,
/// so the database has to end it.
const SESSION_TIMEOUTS: &str =
    "SET statement_timeout = '25s'; SET lock_timeout = '5s'; SET idle_in_transaction_session_timeout = '30s'";

/// The PostgreSQL database that stores the rules.
#[derive(Debug)]
pub(crate) struct Database {
    /// Read again for every connection, because passwords change.
    address: SecretSource,
    readers: Semaphore,
    writers: Semaphore,
    /// A separate permit, so that the rule watcher never waits behind readers.
    watcher: Semaphore,
    /// A connection that no reader and no writer uses at the moment.
    idle: Mutex<Option<PgConnection>>,
    /// The connection of the rule watcher, between its polls. It has its own, so that readers do not make it dial.
    watching: Mutex<Option<PgConnection>>,
    /// The threads for long work on what was read.
    workers: Arc<BackgroundWorkers>,
}

/// The reason why the database could not be used.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// The address is invalid.
    #[error("database_url: {0}")]
    Address(String),
    /// The file with the address cannot be read.
    #[error("database_url: {0}")]
    File(String),
    /// The tables are missing, or older than this program.
    #[error("tables are missing or outdated: run `trypema rules migrate`")]
    NotMigrated,
    /// A table of the same name exists, and is not the documented one.
    #[error(
        "the database has a table rate_limit_rules that cannot be adopted: {0}. Nothing was changed: rename that table, or use \
         another database or schema"
    )]
    UnrelatedTable(String),
    /// The database did not answer in time.
    #[error("PostgreSQL did not answer within {} s", QUERY_TIMEOUT.as_secs())]
    Timeout,
    /// The task that worked on the reply ended early.
    #[error("the request was interrupted by an internal error; see the log of the server")]
    Interrupted,
    /// Too many sessions or read tasks are waiting.
    #[error("too many concurrent requests for rules; retry")]
    TooManySessions,
    /// The database rejected a query, or is unreachable.
    #[error("the database: {}", message_of(.0))]
    Failed(#[from] sqlx::Error),
    /// A migration failed.
    #[error("migrating the database: {}", migration_message(.0))]
    Migration(#[from] sqlx::migrate::MigrateError),
}

impl DatabaseError {
    /// Whether a retry cannot help.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Address(_) | Self::NotMigrated | Self::UnrelatedTable(_) => true,
            Self::File(_)
            | Self::Timeout
            | Self::Interrupted
            | Self::TooManySessions
            | Self::Failed(_)
            | Self::Migration(_) => false,
        }
    }

    /// Returns the message of the constraint that rejected a change, if that is the cause.
    pub(crate) fn constraint_violation(&self) -> Option<String> {
        let Self::Failed(sqlx::Error::Database(error)) = self else { return None };
        match error.code().as_deref() {
            // Violations of a check, a unique or a foreign key; numbers or texts that do not fit.
            Some("23514" | "23505" | "23503" | "22003" | "22001" | "22P05" | "22021") => {
                Some(error.message().to_owned())
            }
            _ => None,
        }
    }

    /// Returns a description for callers that have no access to the database.
    pub(crate) fn public_message(&self) -> Cow<'static, str> {
        let code = match self {
            Self::NotMigrated | Self::Interrupted | Self::TooManySessions => return self.to_string().into(),
            Self::Failed(sqlx::Error::Database(error)) => error.code(),
            _ => None,
        };
        Cow::Borrowed(match code.as_deref() {
            Some("55P03" | "40P01" | "40001") => "another change is in progress; nothing was changed",
            Some("42501") => "the database role lacks a permission",
            Some("25006") => "the database is read-only",
            _ => "PostgreSQL is unreachable; the rules in force are unchanged",
        })
    }
}

impl From<WorkerError> for DatabaseError {
    fn from(error: WorkerError) -> Self {
        match error {
            WorkerError::Interrupted => Self::Interrupted,
            WorkerError::Busy => Self::TooManySessions,
        }
    }
}

/// Returns the message of the error, without its position in PostgreSQL's source code.
fn message_of(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => error.message().to_owned(),
        other => other.to_string(),
    }
}

/// Returns the reason why a migration failed, with the object that the database names.
fn migration_message(error: &sqlx::migrate::MigrateError) -> String {
    let sqlx::migrate::MigrateError::ExecuteMigration(error, version) = error else {
        return error.to_string();
    };
    let detail = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    let detail = detail.and_then(PgDatabaseError::detail).map(|detail| format!(" ({detail})"));
    format!("{}{}; nothing was changed (migration {version})", message_of(error), detail.unwrap_or_default())
}

/// A connection, and the permit to use one.
#[derive(Debug)]
struct DatabaseSession<'d> {
    database: &'d Database,
    connection: PgConnection,
    purpose: Purpose,
    _permit: SemaphorePermit<'d>,
}

/// The purpose of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Reading,
    Writing,
    Watching,
}

impl Purpose {
    /// Returns the worker for long work.
    fn worker(self) -> Worker {
        match self {
            Self::Reading => Worker::Reads,
            Self::Writing | Self::Watching => Worker::Changes,
        }
    }
}

impl<'d> DatabaseSession<'d> {
    /// Runs long work on the worker for the session's purpose.
    fn work<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        task: F,
    ) -> impl Future<Output = Result<T, WorkerError>> + use<'d, T, F> {
        self.database.workers.run(self.purpose.worker(), task)
    }

    /// Drops a value on the worker for the session's purpose.
    fn discard<T: Send + 'static>(&self, value: T) {
        self.database.workers.discard(self.purpose.worker(), value);
    }

    /// Returns the connection for reuse. Dropping a session instead closes its connection, and with it any
    /// open transaction.
    fn keep_idle(self) {
        *self.database.idle(self.purpose) = Some(self.connection);
    }

    /// Rolls back the transaction, then returns the connection for reuse.
    async fn roll_back(mut self) {
        let rolled_back = async { Ok(query("ROLLBACK").execute(&mut self.connection).await?) };
        if with_timeout(rolled_back).await.is_ok() {
            self.keep_idle();
        }
    }
}

impl Database {
    /// Creates a handle without connecting.
    ///
    /// # Errors
    ///
    /// The address is invalid.
    pub(crate) fn new(address: SecretSource, workers: Arc<BackgroundWorkers>) -> Result<Self, DatabaseError> {
        options(&address)?;
        let (readers, writers, watcher) =
            (Semaphore::new(READERS), Semaphore::new(WRITERS), Semaphore::new(1));
        let (idle, watching) = (Mutex::new(None), Mutex::new(None));
        Ok(Self { address, readers, writers, watcher, idle, watching, workers })
    }

    /// Returns the threads for long work.
    pub(crate) fn workers(&self) -> &BackgroundWorkers {
        &self.workers
    }

    /// Returns the idle connection for this purpose.
    fn idle(&self, purpose: Purpose) -> MutexGuard<'_, Option<PgConnection>> {
        let idle = match purpose {
            Purpose::Reading | Purpose::Writing => &self.idle,
            Purpose::Watching => &self.watching,
        };
        idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a session, or [`DatabaseError::TooManySessions`] if none is free in time.
    async fn session(&self, purpose: Purpose) -> Result<DatabaseSession<'_>, DatabaseError> {
        let permits = match purpose {
            Purpose::Reading => &self.readers,
            Purpose::Writing => &self.writers,
            Purpose::Watching => &self.watcher,
        };
        let permit = timeout(QUERY_TIMEOUT, permits.acquire()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or(DatabaseError::TooManySessions)?;
        let idle = self.idle(purpose).take();
        let connection = match if_alive(idle).await {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(DatabaseSession { database: self, connection, purpose, _permit: permit })
    }

    async fn connect(&self) -> Result<PgConnection, DatabaseError> {
        let connecting = async {
            let mut connection = options(&self.address)?.connect().await?;
            sqlx::raw_sql(SESSION_TIMEOUTS).execute(&mut connection).await?;
            Ok(connection)
        };
        timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or(Err(DatabaseError::Timeout))
    }

    /// Calls `on_notification` for every announced change, with its revision, and once at the start. Returns when
    /// the connection ends.
    ///
    /// # Errors
    ///
    /// The database is unreachable.
    pub(crate) async fn listen(&self, on_notification: impl Fn(Option<u64>)) -> Result<(), DatabaseError> {
        let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool = pool.acquire_timeout(CONNECT_TIMEOUT).connect_lazy_with(options(&self.address)?);
        let mut listener = with_timeout(async {
            let mut listener = PgListener::connect_with(&pool).await?;
            // Return on a lost connection: the caller has to know that it may have missed a change.
            listener.eager_reconnect(false);
            listener.listen(CHANNEL).await?;
            Ok(listener)
        })
        .await?;
        on_notification(None);
        loop {
            match timeout(KEEPALIVE_INTERVAL, listener.try_recv()).await {
                Ok(Ok(Some(notification))) => on_notification(notification.payload().parse().ok()),
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(error)) => return Err(error.into()),
                // A connection that died silently looks like one without announcements, so check it with a
                // query.
                Err(_) => {
                    let alive = async { Ok(listener.execute("SELECT 1").await?) };
                    with_timeout(alive).await?;
                }
            }
        }
    }
}

/// Returns an idle connection if it still works: the database may have restarted, or a firewall may have
/// dropped the connection.
async fn if_alive(idle: Option<PgConnection>) -> Option<PgConnection> {
    let mut connection = idle?;
    let ping = timeout(PING_TIMEOUT, connection.ping()).await;
    ping.is_ok_and(|ping| ping.is_ok()).then_some(connection)
}

/// Creates an unnamed statement, so that clients which share connections through a pooler do not conflict.
fn query<'q>(text: impl SqlSafeStr) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(text).persistent(false)
}

/// Runs `work` with the timeout [`QUERY_TIMEOUT`]. On a timeout the session is dropped, which closes its
/// connection.
async fn with_timeout<T>(work: impl Future<Output = Result<T, DatabaseError>>) -> Result<T, DatabaseError> {
    timeout(QUERY_TIMEOUT, work).await.unwrap_or(Err(DatabaseError::Timeout))
}

fn options(address: &SecretSource) -> Result<PgConnectOptions, DatabaseError> {
    let text = address.read().map_err(DatabaseError::File)?;
    let text = text.reveal();
    if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
        return Err(DatabaseError::Address("need postgres://user@host/database".to_owned()));
    }
    // The parser's error may quote a part of the address, and so of the password.
    let options = PgConnectOptions::from_str(text).map_err(|_| {
        DatabaseError::Address("not a valid URL: need postgres://user@host/database".to_owned())
    })?;
    Ok(options
        .application_name("trypema")
        .extra_float_digits(None)
        .statement_cache_capacity(0)
        .disable_statement_logging())
}
