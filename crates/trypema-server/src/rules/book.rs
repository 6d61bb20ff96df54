//! Rules that live in a database: opened at start, changed by whoever may, and followed by every server.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use trypema::rules::RuleSet;

use super::cache::Cache;
use super::database::{Address, Database, DatabaseError, Edited, Stored, Unusable, Version};
use crate::background_worker::Worker;
use crate::clock::Started;
use crate::metrics::{Counter, Exposition, Kind};
use crate::secret::Secret;

/// How long whoever changed rules waits until this server has them in force.
const UNTIL_IN_FORCE: Duration = Duration::from_secs(1);

/// Where rules live.
#[derive(Debug, Clone)]
pub struct DatabaseChoice {
    /// How the database is reached.
    pub address: Address,
    /// How often it is asked whether there is something new.
    pub poll: Duration,
    /// The Redis that keeps the last good rules.
    pub(crate) cache: Option<CacheChoice>,
}

/// The Redis that keeps the last good rules.
#[derive(Debug, Clone)]
pub(crate) struct CacheChoice {
    pub(crate) url: Secret,
    /// The prefix of its keys.
    pub(crate) prefix: String,
}

/// Where rules are stored, and where the last good ones are kept.
struct Stores {
    database: Database,
    cache: Option<Cache>,
}

/// Rules that live in a database.
#[derive(Debug)]
pub(crate) struct Book {
    database: Database,
    cache: Option<Cache>,
    poll: Duration,
    /// Something may have changed.
    wake: Notify,
    in_force: watch::Sender<InForce>,
    /// When the rules in force were last known to be the ones that are stored.
    current_at: Mutex<Started>,
    pub(crate) failures: Counter,
}

/// Which rules are in force.
#[derive(Debug, Clone)]
pub(crate) struct InForce {
    pub(crate) version: Version,
    pub(crate) origin: Origin,
}

/// Where the rules in force were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Database,
    Cache,
}

/// Why rules could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The database, and no rules are kept in Redis.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// What is stored, and no rules are kept in Redis.
    #[error("the rules that are stored cannot be used:\n{0}")]
    Unusable(#[from] Unusable),
    /// The Redis that keeps them.
    #[error(transparent)]
    Cache(#[from] trypema::TrypemaError),
    /// The process is about to end.
    #[error("interrupted")]
    Interrupted,
}

impl OpenError {
    /// Whether trying again later cannot help.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Database(error) => error.is_final(),
            Self::Unusable(_) | Self::Cache(_) => true,
            Self::Interrupted => false,
        }
    }
}

/// Rules that were opened, and what is to be put in force.
pub(crate) struct Opened {
    pub(crate) book: Book,
    pub(crate) rules: RuleSet,
    /// What was wrong with those that are stored, if these are older ones.
    pub(crate) refused: Option<String>,
}

impl Book {
    /// Opens what is stored; or else what is kept in Redis, so that a server starts while the database is away.
    pub(crate) async fn open(choice: &DatabaseChoice) -> Result<Opened, OpenError> {
        let database = Database::new(choice.address.clone())?;
        let cache = choice.cache.as_ref().map(|cache| Cache::new(cache.url.reveal(), &cache.prefix));
        let cache = cache.transpose()?;
        let failed = match read(&database).await {
            Ok((version, rules)) => {
                warn_of_unusable(&database).await;
                let in_force = InForce { version, origin: Origin::Database };
                let book = Self::new(choice, Stores { database, cache }, in_force);
                return Ok(Opened { book, rules, refused: None });
            }
            Err(error @ OpenError::Database(DatabaseError::NotMigrated)) => return Err(error),
            Err(error) => error,
        };
        let kept = match &cache {
            Some(cache) => cache.load().await.unwrap_or_else(|error| {
                tracing::warn!(%error, "the rules that are kept in redis cannot be read");
                None
            }),
            None => None,
        };
        let Some(kept) = kept else { return Err(failed) };
        let version = kept.version.clone();
        tracing::warn!(error = %failed, revision = version.revision, "starting with the rules that are kept in redis");
        let Ok(rules) = compiled(kept).await else { return Err(failed) };
        let refused = matches!(failed, OpenError::Unusable(_)).then(|| failed.to_string());
        let book = Self::new(choice, Stores { database, cache }, InForce { version, origin: Origin::Cache });
        Ok(Opened { book, rules, refused })
    }

    fn new(choice: &DatabaseChoice, stores: Stores, in_force: InForce) -> Self {
        Self {
            database: stores.database,
            cache: stores.cache,
            poll: choice.poll,
            wake: Notify::new(),
            in_force: watch::Sender::new(in_force),
            current_at: Mutex::new(Started::now()),
            failures: Counter::default(),
        }
    }

    /// Where the rules are stored.
    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// The copy in Redis, if there is one.
    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    /// How often the database is asked.
    pub(crate) fn poll(&self) -> Duration {
        self.poll
    }

    /// Waits until the database is to be asked at once.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Has the database asked at once.
    pub(crate) fn look_again(&self) {
        self.wake.notify_one();
    }

    /// Has all servers put in force what was changed, and waits a moment until this one has.
    pub(crate) async fn spread(&self, edited: &Edited) {
        if edited.changes.is_empty() {
            return;
        }
        self.look_again();
        if let Some(cache) = &self.cache
            && let Err(error) = cache.announce(edited.revision).await
        {
            tracing::warn!(%error, "the change could not be announced through redis");
        }
        let mut in_force = self.in_force.subscribe();
        let is_there = in_force.wait_for(|in_force| in_force.version.revision >= edited.revision);
        if timeout(UNTIL_IN_FORCE, is_there).await.is_err() {
            tracing::warn!(revision = edited.revision, "the change is stored, and not in force here yet");
        }
    }

    /// Which rules are in force.
    pub(crate) fn in_force(&self) -> InForce {
        self.in_force.borrow().clone()
    }

    /// Notes that other rules are in force, and tells those who wait for them.
    pub(crate) fn put_in_force(&self, rules: InForce) {
        self.in_force.send_replace(rules);
    }

    /// Notes that the rules in force are the ones that are stored.
    pub(crate) fn note_current(&self) {
        *self.current_at.lock().unwrap_or_else(PoisonError::into_inner) = Started::now();
        self.in_force.send_modify(|in_force| in_force.origin = Origin::Database);
    }

    /// For how long it has not been known whether these are the ones that are stored.
    pub(crate) fn stale(&self) -> Duration {
        self.current_at.lock().unwrap_or_else(PoisonError::into_inner).ago()
    }
}

/// What Prometheus reads of the rules that are stored; of those in a file, that they are never stale.
pub(crate) fn write(book: Option<&Book>, text: &mut Exposition) {
    text.family(
        "trypema_rules_revision",
        Kind::Gauge,
        "The revision of the rules in force; 0 for those in a file.",
    );
    text.sample(&[], book.map_or(0, |book| book.in_force().version.revision));
    text.family(
        "trypema_rules_stale_seconds",
        Kind::Gauge,
        "For how long it has not been known whether the rules in force are the ones that are stored.",
    );
    text.sample(&[], book.map_or(0, |book| book.stale().as_secs()));
    text.family(
        "trypema_database_failures_total",
        Kind::Counter,
        "How often the database could not be asked for rules.",
    );
    text.sample(&[], book.map_or(0, |book| book.failures.get()));
}

/// Says which rows of an adopted table are not in force. Servers start all the same: the rows are not among the rules that are stored.
async fn warn_of_unusable(database: &Database) {
    match database.unusable_rules().await {
        Ok(unusable) => {
            for rule in unusable {
                tracing::warn!(%rule, "a row of the adopted table is not in force: see rate_limit_unusable_rules");
            }
        }
        Err(error) => tracing::debug!(%error, "rate_limit_unusable_rules cannot be read"),
    }
}

async fn read(database: &Database) -> Result<(Version, RuleSet), OpenError> {
    let stored = database.read().await?;
    let version = stored.version.clone();
    Ok((version, compiled(stored).await?))
}

/// Compiles rules on a thread that decides nothing.
async fn compiled(stored: Stored) -> Result<RuleSet, OpenError> {
    let compiling = Worker::Changes.run(move || stored.compile());
    Ok(compiling.await.map_err(|_| OpenError::Interrupted)??)
}
