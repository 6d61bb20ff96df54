//! Watches the rules in the database: on every notification, and at every poll, because notifications can
//! get lost.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Notify;
use trypema::rules::{Period, RuleSet, Rules};

use crate::app::App;
use crate::background_worker::Worker;
use crate::rules::cache::{CacheError, CacheState};
use crate::rules::database::{DatabaseError, InvalidStoredRules, StoredRules, Version};
use crate::rules::store::{InForce, RuleStore, RulesOrigin};

/// The delay before the first retry after a failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
/// The longest delay between two retries.
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// The shortest time between the starts of two polls. However many notifications arrive, a server polls at most ten
/// times a second.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The time that a replaced rule set is kept. Then the worker frees it, so that no request in flight is the
/// last owner and has to free thousands of rules.
const FREE_AFTER: Duration = Duration::from_secs(1);

/// The state of the task that watches the database.
struct RuleWatcher {
    app: Arc<App>,
    rule_store: Arc<RuleStore>,
    /// The last version that was read, whether it could be put in force or not; `None` before the first
    /// read.
    seen: Option<Version>,
    is_unreachable: bool,
    /// Whether a newer server wrote the cache entry in Redis. This is logged only once.
    is_entry_newer: bool,
    /// Whether this process has written the cache entry. Before that, the entry may be anything.
    has_cached: bool,
}

/// An exponential backoff: each delay is twice the previous one, up to [`MAX_BACKOFF`].
struct Backoff(Duration);

impl Backoff {
    const NONE: Self = Self(FIRST_BACKOFF);

    fn next(&mut self) -> Duration {
        let delay = self.0;
        self.0 = (delay * 2).min(MAX_BACKOFF);
        delay
    }
}

/// Reads the stored rules and puts them in force, forever.
pub(super) async fn watch(app: Arc<App>, rule_store: Arc<RuleStore>) {
    let mut watcher = RuleWatcher {
        app,
        rule_store,
        seen: None,
        is_unreachable: false,
        is_entry_newer: false,
        has_cached: false,
    };
    let mut backoff = Backoff::NONE;
    loop {
        let pause = tokio::time::sleep(MIN_POLL_INTERVAL);
        watcher.poll().await;
        let poll = jittered(watcher.rule_store.poll);
        let wait = if watcher.is_unreachable { backoff.next().min(poll) } else { poll };
        if !watcher.is_unreachable {
            backoff = Backoff::NONE;
        }
        // Announcements during the pause are answered by one poll after it.
        let woken = async {
            pause.await;
            watcher.rule_store.wake.notified().await;
        };
        tokio::select! {
            () = woken => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Listens for announcements of changes, forever. After a failure it waits, longer each time, and logs the first one:
/// `channel` is what failed, `others` how changes arrive meanwhile. When the connection breaks, the watcher polls at once:
/// it finds out whether the database is away, and what was missed.
async fn keep_listening<E: Display, L: Future<Output = Result<(), E>>>(
    rule_store: &RuleStore,
    listen: impl Fn() -> L,
    channel: &str,
    others: &str,
) {
    let mut backoff = Backoff::NONE;
    loop {
        match listen().await {
            Ok(()) => {
                backoff = Backoff::NONE;
                rule_store.wake.notify_one();
            }
            Err(error) if backoff.0 == FIRST_BACKOFF => {
                rule_store.wake.notify_one();
                tracing::warn!("rules: {channel} failed ({error}); {others}");
            }
            Err(error) => tracing::debug!("rules: {channel} failed again ({error})"),
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

/// Wakes the watcher on every NOTIFY of the database, forever.
pub(super) async fn listen_to_database(rule_store: Arc<RuleStore>) {
    let poll = Period(rule_store.poll);
    let others = format!("changes are found by polling every {poll} (rules_poll)");
    let wake = |revision| rule_store.wake_for_announcement(revision);
    keep_listening(&rule_store, || rule_store.database().listen(wake), "LISTEN on PostgreSQL", &others).await;
}

/// Wakes the watcher on every announcement through Redis, forever. Does nothing if no Redis is configured.
pub(super) async fn listen_to_redis(rule_store: Arc<RuleStore>) {
    let Some(cache) = rule_store.cache() else { return std::future::pending().await };
    let others = "changes arrive through PostgreSQL NOTIFY or polling";
    let wake = |revision| rule_store.wake_for_announcement(revision);
    keep_listening(&rule_store, || cache.listen(wake), "Redis Pub/Sub", others).await;
}

/// Wakes the watcher on every reload request, forever.
pub(super) async fn listen_for_reload(rule_store: Arc<RuleStore>, reload: Arc<Notify>) {
    loop {
        reload.notified().await;
        rule_store.wake.notify_one();
    }
}

/// Returns `poll`, shortened by up to a tenth, so that servers do not all query the database at once. The
/// amount depends on the fraction of the current second.
fn jittered(poll: Duration) -> Duration {
    let part = crate::clock::since_epoch().subsec_nanos() % 1_000;
    poll - poll / 10 * part / 1_000
}

impl RuleWatcher {
    async fn poll(&mut self) {
        let adopted = match self.rule_store.database().read_unless(self.seen.as_ref()).await {
            Ok(None) => {
                self.mark_reachable();
                None
            }
            Ok(Some(stored)) => {
                self.mark_reachable();
                self.put_in_force(stored, RulesOrigin::Database).await
            }
            Err(error) => {
                self.mark_unreachable(&error);
                self.read_cache().await;
                None
            }
        };
        let seen = self.seen.as_ref().filter(|_| !self.is_unreachable);
        self.rule_store.read_revision.store(seen.map_or(0, |seen| seen.revision), Ordering::Release);
        if !self.is_unreachable && self.is_current() {
            self.rule_store.mark_current();
        }
        let adopted = adopted.map(Arc::new);
        let cached = self.update_cache(adopted.clone()).await;
        self.app.workers().discard(Worker::Changes, adopted);
        let was_failing = self.rule_store.is_cache_failing.swap(cached.is_err(), Ordering::Relaxed);
        match cached {
            Err(error) if !was_failing => tracing::warn!(
                "rules: cannot write the rule cache to Redis ({error}); servers cannot start while PostgreSQL is \
                 unreachable"
            ),
            Ok(()) if was_failing => tracing::info!("rules: the rule cache in Redis is written again"),
            _ => {}
        }
    }

    /// Whether the version that was read last is in force.
    fn is_current(&self) -> bool {
        self.seen.as_ref() == Some(&self.rule_store.in_force().version)
    }

    fn mark_reachable(&mut self) {
        if std::mem::take(&mut self.is_unreachable) {
            tracing::info!("rules: PostgreSQL is reachable again");
        }
    }

    fn mark_unreachable(&mut self, error: &DatabaseError) {
        self.rule_store.failures.add_one();
        if !std::mem::replace(&mut self.is_unreachable, true) {
            let revision = self.rule_store.in_force().version.revision;
            tracing::warn!(
                "rules: cannot read rules from PostgreSQL ({error}); keeping revision {revision}, retrying every \
                 {} to {}",
                Period(FIRST_BACKOFF),
                Period(MAX_BACKOFF.min(self.rule_store.poll))
            );
        }
    }

    /// Loads newer rules from the cache in Redis: another server may still reach the database.
    async fn read_cache(&mut self) {
        let Some(cache) = self.rule_store.cache() else { return };
        let cached = match cache.load().await {
            Ok(Some(cached)) => cached,
            Err(error @ CacheError::NewerFormat(_)) => return self.warn_of_newer_format(&error),
            Err(error @ CacheError::Unreadable(_)) => return self.warn_of_newer_format(&error),
            Ok(None) | Err(_) => return,
        };
        let known = self.rule_store.in_force().version;
        let seen = self.seen.as_ref().map_or(0, |seen| seen.revision);
        if cached.version.set_id == known.set_id && cached.version.revision > known.revision.max(seen) {
            self.put_in_force(cached, RulesOrigin::Cache).await;
        }
    }

    /// Puts stored rules in force, unless they already are. Returns their definition, or `None` if they are
    /// invalid.
    async fn put_in_force(&mut self, stored: StoredRules, origin: RulesOrigin) -> Option<Rules> {
        let version = stored.version.clone();
        self.seen = Some(version.clone());
        if self.is_current() && self.rule_store.in_force().origin == origin {
            return Some(stored.rules);
        }
        let app = Arc::clone(&self.app);
        // Compiling thousands of rules takes a while, so it runs on the worker and not on a thread that
        // decides.
        let compiling = self.app.workers().run(Worker::Changes, move || {
            let rules: RuleSet = app.with_hashed(stored.compile()?);
            let changes = rules.changes_since(&app.rules());
            Ok::<_, InvalidStoredRules>((app.replace_rules(rules), changes, stored.rules))
        });
        let (revision, old) = (version.revision, self.rule_store.in_force().version.revision);
        let (retired, changes, rules) = match compiling.await {
            Ok(Ok(adopted)) => adopted,
            Ok(Err(error)) => {
                // The error may have several lines, one for each problem.
                tracing::error!(%error, "rules: revision {revision} is invalid; keeping revision {old}");
                self.app.rules_refused(&error);
                return None;
            }
            Err(error) => {
                tracing::error!(
                    "rules: cannot apply revision {revision} ({error}); keeping revision {old}, retrying"
                );
                self.seen = None;
                return None;
            }
        };
        let source = match origin {
            RulesOrigin::Database => "PostgreSQL",
            RulesOrigin::Cache => "the rule cache in Redis",
        };
        tracing::info!(
            revision,
            rules = rules.rules.len(),
            "rules: loaded revision {revision} from {source}, was {old}: {changes}"
        );
        self.rule_store.put_in_force(InForce { version, origin });
        let app = Arc::clone(&self.app);
        tokio::spawn(async move {
            tokio::time::sleep(FREE_AFTER).await;
            app.workers().discard(Worker::Changes, retired);
        });
        Some(rules)
    }

    /// Logs once that a newer server wrote the cache entry.
    fn warn_of_newer_format(&mut self, error: &CacheError) {
        if !std::mem::replace(&mut self.is_entry_newer, true) {
            tracing::warn!("rules: ignoring the rule cache in Redis ({error}); relying on PostgreSQL only");
        }
    }

    /// Writes the rules in force to the cache in Redis. A server that has just read the database overwrites
    /// the entry, with two exceptions: an entry of the same version in a newer format stays, and so does an
    /// entry of a later revision, unless the database has lost that revision.
    async fn update_cache(&mut self, rules: Option<Arc<Rules>>) -> Result<(), CacheError> {
        let rule_store = Arc::clone(&self.rule_store);
        let (Some(cache), version) = (rule_store.cache(), rule_store.in_force().version) else {
            return Ok(());
        };
        let cached = cache.refresh(&version).await;
        match &cached {
            Ok(CacheState::NewerFormat(format)) => {
                self.warn_of_newer_format(&CacheError::NewerFormat(format.clone()));
                return Ok(());
            }
            Ok(CacheState::Same) => self.is_entry_newer = false,
            Ok(CacheState::Later | CacheState::Other) | Err(_) => {}
        }
        if self.is_unreachable || !self.is_current() {
            return cached.map(drop);
        }
        let stored = match (&cached, rules) {
            (Ok(CacheState::Same), _) if self.has_cached => Ok(()),
            // The entry is later, so another server has read a newer revision. It stays, unless the database
            // still has this server's version: then the database has lost the later one.
            (Ok(CacheState::Later), _)
                if self.rule_store.database().version().await.ok() != Some(version.clone()) =>
            {
                Ok(())
            }
            (_, Some(rules)) => cache.store(&version, rules).await,
            (_, None) => match self.rule_store.database().read_unless(None).await {
                Ok(Some(stored)) if stored.version == version => {
                    cache.store(&version, Arc::new(stored.rules)).await
                }
                // The database has another version by now; the next poll handles it.
                _ => Ok(()),
            },
        };
        self.has_cached |= stored.is_ok();
        stored
    }
}
