//! Watches the rules in the database: on every notification, and at every poll, because notifications can
//! get lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use trypema::rules::{Period, RuleSet, Rules};

use crate::app::App;
use crate::background_worker::Worker;
use crate::rules::book::{Book, InForce, Origin};
use crate::rules::cache::{CacheError, Kept};
use crate::rules::database::{DatabaseError, Stored, Unusable, Version};

/// The delay before the first retry after a failure.
const FIRST_REST: Duration = Duration::from_millis(500);
/// The longest delay between two retries.
const LAST_REST: Duration = Duration::from_secs(10);
/// The time that a replaced rule set is kept. Then the worker frees it, so that no request in flight is the
/// last owner and has to free thousands of rules.
const RETIRED_FOR: Duration = Duration::from_secs(1);

/// The state of the task that watches the database.
struct Follower {
    app: Arc<App>,
    book: Arc<Book>,
    /// The last version that was read, whether it could be put in force or not; `None` before the first
    /// read.
    seen: Option<Version>,
    is_away: bool,
    is_keeping_failing: bool,
    /// Whether a newer server wrote the cache entry in Redis. This is logged only once.
    is_entry_newer: bool,
    /// Whether this process has written the cache entry. Before that, the entry may be anything.
    has_kept: bool,
}

/// An exponential backoff: each delay is twice the previous one, up to [`LAST_REST`].
struct Rest(Duration);

impl Rest {
    const NONE: Self = Self(FIRST_REST);

    fn next(&mut self) -> Duration {
        let rest = self.0;
        self.0 = (rest * 2).min(LAST_REST);
        rest
    }
}

/// Reads the stored rules and puts them in force, forever.
pub(super) async fn follow(app: Arc<App>, book: Arc<Book>) {
    let mut follower = Follower {
        app,
        book,
        seen: None,
        is_away: false,
        is_keeping_failing: false,
        is_entry_newer: false,
        has_kept: false,
    };
    let mut rest = Rest::NONE;
    loop {
        follower.look().await;
        let poll = jittered(follower.book.poll());
        let wait = if follower.is_away { rest.next().min(poll) } else { poll };
        if !follower.is_away {
            rest = Rest::NONE;
        }
        tokio::select! {
            () = follower.book.woken() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Wakes the watcher on every NOTIFY of the database, forever.
pub(super) async fn hear_database(book: Arc<Book>) {
    let mut rest = Rest::NONE;
    loop {
        match book.database().listen(|| book.look_again()).await {
            Ok(()) => rest = Rest::NONE,
            Err(error) if rest.0 == FIRST_REST => {
                let poll = Period(book.poll());
                tracing::warn!(
                    "rules: LISTEN on PostgreSQL failed ({error}); changes are found by polling every {poll} \
                     (rules_poll)"
                );
            }
            Err(error) => tracing::debug!("rules: LISTEN on PostgreSQL failed again ({error})"),
        }
        tokio::time::sleep(rest.next()).await;
    }
}

/// Wakes the watcher on every announcement through Redis, forever. Does nothing if no Redis is configured.
pub(super) async fn hear_redis(book: Arc<Book>) {
    let Some(cache) = book.cache() else { return std::future::pending().await };
    let mut rest = Rest::NONE;
    loop {
        match cache.listen(|| book.look_again()).await {
            Ok(()) => rest = Rest::NONE,
            Err(error) if rest.0 == FIRST_REST => {
                tracing::warn!(
                    "rules: Redis Pub/Sub failed ({error}); changes arrive through PostgreSQL NOTIFY or polling"
                );
            }
            Err(error) => tracing::debug!("rules: Redis Pub/Sub failed again ({error})"),
        }
        tokio::time::sleep(rest.next()).await;
    }
}

/// Wakes the watcher on every reload request, forever.
pub(super) async fn hear_reload(book: Arc<Book>, asked: Arc<Notify>) {
    loop {
        asked.notified().await;
        book.look_again();
    }
}

/// Returns up to a tenth less than `poll`, by the current time, so that servers do not all query the
/// database at once.
fn jittered(poll: Duration) -> Duration {
    let part = crate::clock::since_epoch().subsec_nanos() % 1_000;
    poll - poll / 10 * part / 1_000
}

impl Follower {
    async fn look(&mut self) {
        let adopted = match self.book.database().read_unless(self.seen.as_ref()).await {
            Ok(None) => {
                self.reached();
                None
            }
            Ok(Some(stored)) => {
                self.reached();
                self.adopt(stored, Origin::Database).await
            }
            Err(error) => {
                self.lost(&error);
                self.look_into_cache().await;
                None
            }
        };
        if !self.is_away && self.is_current() {
            self.book.note_current();
        }
        let kept = self.keep(adopted.as_ref()).await;
        Worker::Changes.discard(adopted);
        if let Err(error) = &kept
            && !self.is_keeping_failing
        {
            tracing::warn!(
                "rules: cannot write the rule cache to Redis ({error}); servers cannot start while PostgreSQL is \
                 unreachable"
            );
        }
        self.is_keeping_failing = kept.is_err();
    }

    /// Whether the version that was read last is in force.
    fn is_current(&self) -> bool {
        self.seen.as_ref() == Some(&self.book.in_force().version)
    }

    fn reached(&mut self) {
        if std::mem::take(&mut self.is_away) {
            tracing::info!("rules: PostgreSQL is reachable again");
        }
    }

    fn lost(&mut self, error: &DatabaseError) {
        self.book.failures.add_one();
        if !std::mem::replace(&mut self.is_away, true) {
            let revision = self.book.in_force().version.revision;
            tracing::warn!(
                "rules: cannot read rules from PostgreSQL ({error}); keeping revision {revision}, retrying every \
                 {} to {}",
                Period(FIRST_REST),
                Period(LAST_REST.min(self.book.poll()))
            );
        }
    }

    /// Loads newer rules from the cache in Redis: another server may still reach the database.
    async fn look_into_cache(&mut self) {
        let Some(cache) = self.book.cache() else { return };
        let kept = match cache.load().await {
            Ok(Some(kept)) => kept,
            Err(error @ CacheError::NewerFormat(_)) => return self.ignore_newer(&error),
            Ok(None) | Err(_) => return,
        };
        let known = self.book.in_force().version;
        let seen = self.seen.as_ref().map_or(0, |seen| seen.revision);
        if kept.version.set_id == known.set_id && kept.version.revision > known.revision.max(seen) {
            self.adopt(kept, Origin::Cache).await;
        }
    }

    /// Puts stored rules in force, unless they already are. Returns their definition, or `None` if they are
    /// invalid.
    async fn adopt(&mut self, stored: Stored, origin: Origin) -> Option<Rules> {
        let version = stored.version.clone();
        self.seen = Some(version.clone());
        if self.is_current() && self.book.in_force().origin == origin {
            return Some(stored.rules);
        }
        let app = Arc::clone(&self.app);
        // Compiling thousands of rules takes a while, so it runs on the worker and not on a thread that
        // decides.
        let adopting = Worker::Changes.run(move || {
            let rules: RuleSet = stored.compile()?;
            let changes = rules.changes_since(&app.rules());
            Ok::<_, Unusable>((app.replace_rules(rules), changes, stored.rules))
        });
        let (revision, old) = (version.revision, self.book.in_force().version.revision);
        let (retired, changes, rules) = match adopting.await {
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
            Origin::Database => "PostgreSQL",
            Origin::Cache => "the rule cache in Redis",
        };
        tracing::info!(
            revision,
            rules = rules.rules.len(),
            "rules: loaded revision {revision} from {source}, was {old}: {changes}"
        );
        self.book.put_in_force(InForce { version, origin });
        tokio::spawn(async move {
            tokio::time::sleep(RETIRED_FOR).await;
            Worker::Changes.discard(retired);
        });
        Some(rules)
    }

    /// Logs once that a newer server wrote the cache entry.
    fn ignore_newer(&mut self, error: &CacheError) {
        if !std::mem::replace(&mut self.is_entry_newer, true) {
            tracing::warn!("rules: ignoring the rule cache in Redis ({error}); relying on PostgreSQL only");
        }
    }

    /// Writes the rules in force to the cache in Redis. A server that has just read the database overwrites
    /// the entry, with two exceptions: an entry of the same version in a newer format stays, and so does an
    /// entry of a later revision, unless the database has lost that revision.
    async fn keep(&mut self, rules: Option<&Rules>) -> Result<(), CacheError> {
        let book = Arc::clone(&self.book);
        let (Some(cache), version) = (book.cache(), book.in_force().version) else { return Ok(()) };
        let kept = cache.refresh(&version).await;
        match &kept {
            Ok(Kept::NewerFormat(format)) => {
                self.ignore_newer(&CacheError::NewerFormat(format.clone()));
                return Ok(());
            }
            Ok(Kept::This) => self.is_entry_newer = false,
            Ok(Kept::Later | Kept::Other) | Err(_) => {}
        }
        if self.is_away || !self.is_current() {
            return kept.map(drop);
        }
        let keeping = match (&kept, rules) {
            (Ok(Kept::This), _) if self.has_kept => Ok(()),
            // The entry is later, so another server has read a newer revision. It stays, unless the database
            // still has this server's version: then the database has lost the later one.
            (Ok(Kept::Later), _) if self.book.database().version().await.ok() != Some(version.clone()) => {
                Ok(())
            }
            (_, Some(rules)) => cache.keep(&version, rules).await,
            (_, None) => match self.book.database().read_unless(None).await {
                Ok(Some(stored)) if stored.version == version => cache.keep(&version, &stored.rules).await,
                // The database has another version by now; the next poll handles it.
                _ => Ok(()),
            },
        };
        self.has_kept |= keeping.is_ok();
        keeping
    }
}
