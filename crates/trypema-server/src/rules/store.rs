//! Rules in a database: loaded at start, edited through the administration API, and watched by every
//! server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use trypema::rules::{InvalidRules, RuleSet};

use super::cache::Cache;
use super::database::{Database, DatabaseError, EditResult, InvalidStoredRules, StoredRules, Version};
use super::{LoadedRules, WatchedSource};
use crate::background_worker::{BackgroundWorkers, Worker};
use crate::clock::Started;
use crate::metrics::{Counter, Exposition};
use crate::secret::{Secret, SecretSource};

/// The time that an edit waits until this server has the new rules in force.
const IN_FORCE_TIMEOUT: Duration = Duration::from_secs(1);

/// The settings of rules in a database.
#[derive(Debug, Clone)]
pub struct DatabaseChoice {
    /// The address of the database.
    pub address: SecretSource,
    /// The interval at which the server polls for changes.
    pub poll: Duration,
    /// The Redis that caches the last valid rules.
    pub(crate) cache: Option<CacheChoice>,
}

/// The settings of the rules cache in Redis.
#[derive(Debug, Clone)]
pub(crate) struct CacheChoice {
    pub(crate) url: Secret,
    /// The prefix of its key.
    pub(crate) prefix: String,
}

/// The rules in a database: its connection, its cache, and the version in force.
#[derive(Debug)]
pub(crate) struct RuleStore {
    database: Database,
    cache: Option<Cache>,
    /// The interval at which the database is polled.
    pub(crate) poll: Duration,
    /// Wakes the rule watcher, because something may have changed.
    pub(crate) wake: Notify,
    /// The revision that the rule watcher has read last, or 0 if it does not know the present one.
    pub(crate) read_revision: AtomicU64,
    in_force: watch::Sender<InForce>,
    /// The time at which the server last confirmed that the rules in force are the stored ones.
    confirmed_at: Mutex<Started>,
    pub(crate) failures: Counter,
    /// Whether the last attempt to write or refresh the cache failed.
    pub(crate) is_cache_failing: AtomicBool,
}

/// The rules in force: their version and origin.
#[derive(Debug, Clone)]
pub(crate) struct InForce {
    pub(crate) version: Version,
    pub(crate) origin: RulesOrigin,
}

/// The place from which the rules in force were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RulesOrigin {
    Database,
    Cache,
}

/// The reason why rules could not be loaded at start.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The rules file is invalid or unreadable.
    #[error(transparent)]
    File(#[from] InvalidRules),
    /// The database is unusable, and no rules are cached in Redis.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The stored rules are invalid, and no rules are cached in Redis.
    #[error("the stored rules are invalid:\n{0}")]
    InvalidStoredRules(#[from] InvalidStoredRules),
    /// The address of the Redis cache is invalid.
    #[error(transparent)]
    Cache(#[from] trypema::TrypemaError),
    /// The process is about to end.
    #[error("compiling the rules was interrupted")]
    Interrupted,
}

impl OpenError {
    /// Whether a retry cannot help.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Database(error) => error.is_final(),
            Self::File(_) | Self::InvalidStoredRules(_) | Self::Cache(_) => true,
            Self::Interrupted => false,
        }
    }
}

impl RuleStore {
    /// Loads the stored rules. If that fails, loads the cached rules from Redis, so that a server can start
    /// while the database is unreachable.
    pub(crate) async fn open(
        choice: &DatabaseChoice,
        workers: Arc<BackgroundWorkers>,
    ) -> Result<LoadedRules, OpenError> {
        let database = Database::new(choice.address.clone(), Arc::clone(&workers))?;
        let cache = choice.cache.as_ref();
        let cache = cache.map(|cache| Cache::new(cache.url.reveal(), &cache.prefix, workers));
        let cache = cache.transpose()?;
        let (version, rules, origin, refused) = match read(&database).await {
            Ok((version, rules)) => {
                warn_of_unusable(&database).await;
                (version, rules, RulesOrigin::Database, None)
            }
            Err(error @ OpenError::Database(DatabaseError::NotMigrated)) => return Err(error),
            Err(error) => {
                let cached = read_cached(&database, cache.as_ref(), &error).await;
                let Some((version, rules)) = cached else { return Err(error) };
                let refused = matches!(error, OpenError::InvalidStoredRules(_)).then(|| error.to_string());
                (version, rules, RulesOrigin::Cache, refused)
            }
        };
        let rule_store = Self {
            database,
            cache,
            poll: choice.poll,
            wake: Notify::new(),
            read_revision: AtomicU64::new(0),
            in_force: watch::Sender::new(InForce { version, origin }),
            confirmed_at: Mutex::new(Started::now()),
            failures: Counter::default(),
            is_cache_failing: AtomicBool::new(false),
        };
        let watched_source = WatchedSource::Database(Arc::new(rule_store));
        Ok(LoadedRules { rules, watched_source, refused })
    }

    /// Returns the database.
    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// Returns the cache in Redis, if one is configured.
    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    /// Whether the last attempt to write or refresh the cache failed.
    pub(crate) fn is_cache_failing(&self) -> bool {
        self.is_cache_failing.load(Ordering::Relaxed)
    }

    /// Makes the rule watcher read the database soon, unless it has read this revision already. `None` stands for
    /// an announcement without a revision, or for announcements that may have been missed.
    ///
    /// Every change is announced more than once. A restored database counts its revisions from an earlier one;
    /// that is noticed when its connections are replaced, or at the next poll.
    pub(crate) fn wake_for_announcement(&self, revision: Option<u64>) {
        let read = self.read_revision.load(Ordering::Acquire);
        if revision.is_none_or(|revision| revision > read) {
            self.wake.notify_one();
        }
    }

    /// Announces a change to all servers, and waits up to [`IN_FORCE_TIMEOUT`] until this server has it in
    /// force.
    pub(crate) async fn announce(&self, edit: &EditResult) {
        if edit.changes.is_empty() {
            return;
        }
        self.wake.notify_one();
        if let Some(cache) = &self.cache
            && let Err(error) = cache.announce(edit.revision).await
        {
            tracing::warn!(
                "rules: revision {} is stored, but its announcement through Redis failed ({error}); other servers \
                 learn of it by NOTIFY or polling",
                edit.revision
            );
        }
        let mut in_force = self.in_force.subscribe();
        let in_force_here = in_force.wait_for(|in_force| in_force.version.revision >= edit.revision);
        if timeout(IN_FORCE_TIMEOUT, in_force_here).await.is_err() {
            tracing::warn!(
                "rules: revision {} is stored, but not in force on this server after {} s; the server keeps trying",
                edit.revision,
                IN_FORCE_TIMEOUT.as_secs()
            );
        }
    }

    /// Returns the version and origin of the rules in force.
    pub(crate) fn in_force(&self) -> InForce {
        self.in_force.borrow().clone()
    }

    /// Records that other rules are in force, and wakes the edits that wait for them.
    pub(crate) fn put_in_force(&self, rules: InForce) {
        self.in_force.send_replace(rules);
    }

    /// Records that the rules in force are the stored ones.
    pub(crate) fn mark_current(&self) {
        *self.confirmed_at.lock().unwrap_or_else(PoisonError::into_inner) = Started::now();
        self.in_force.send_modify(|in_force| in_force.origin = RulesOrigin::Database);
    }

    /// Returns the time since the server last confirmed that the rules in force are the stored ones.
    pub(crate) fn staleness(&self) -> Duration {
        self.confirmed_at.lock().unwrap_or_else(PoisonError::into_inner).ago()
    }
}

/// Writes the metrics of stored rules. Without a database, all of them are 0.
pub(crate) fn write(rule_store: Option<&RuleStore>, text: &mut Exposition) {
    let revision = rule_store.map_or(0, |rule_store| rule_store.in_force().version.revision);
    text.gauge(
        "trypema_rules_revision",
        "Revision of the rules in force; 0 if they are in a file.",
        revision,
    );
    text.gauge(
        "trypema_rules_stale_seconds",
        "Seconds since the rules in force were last confirmed against the database.",
        rule_store.map_or(0, |rule_store| rule_store.staleness().as_secs()),
    );
    text.counter(
        "trypema_database_failures_total",
        "Failed attempts to read rules from the database.",
        rule_store.map_or(0, |rule_store| rule_store.failures.get()),
    );
    text.gauge(
        "trypema_rule_cache_failing",
        "1 if the rules could not be written to the rule cache in Redis at the last attempt.",
        u64::from(rule_store.is_some_and(RuleStore::is_cache_failing)),
    );
}

/// Logs the rows of an adopted table that are not in force. They do not prevent the start, because they are
/// not among the stored rules.
async fn warn_of_unusable(database: &Database) {
    match database.unusable_rules().await {
        Ok(unusable) => {
            for rule in unusable {
                tracing::warn!(
                    "rules: adopted row {rule} is invalid and not in force; see the table rate_limit_unusable_rules"
                );
            }
        }
        Err(error) => tracing::debug!("rules: cannot read the table rate_limit_unusable_rules ({error})"),
    }
}

async fn read(database: &Database) -> Result<(Version, RuleSet), OpenError> {
    let stored = database.read().await?;
    let version = stored.version.clone();
    Ok((version, compile(database, stored).await?))
}

/// Reads the cached rules, because those of the database cannot be used.
async fn read_cached(
    database: &Database,
    cache: Option<&Cache>,
    failed: &OpenError,
) -> Option<(Version, RuleSet)> {
    let cached = cache?.load().await.unwrap_or_else(|error| {
        tracing::warn!("rules: cannot read the rule cache in Redis ({error}); starting without it");
        None
    })?;
    let version = cached.version.clone();
    // The error may have several lines, one for each problem of stored rules.
    tracing::warn!(
        error = %failed,
        "rules: cannot use the rules in PostgreSQL; starting with revision {} from the rule cache in Redis",
        version.revision
    );
    Some((version, compile(database, cached).await.ok()?))
}

/// Compiles rules on the worker, not on a thread that decides.
async fn compile(database: &Database, stored: StoredRules) -> Result<RuleSet, OpenError> {
    let compiling = database.workers().run(Worker::Changes, move || stored.compile());
    Ok(compiling.await.map_err(|_| OpenError::Interrupted)??)
}
