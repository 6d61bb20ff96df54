//! Following what is stored: on every announcement, and at every poll, as announcements get lost.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use trypema::rules::{RuleSet, Rules};

use super::book::{Book, InForce, Origin};
use super::cache::CacheError;
use super::database::{DatabaseError, Reader, Stored, Unusable, Version};
use crate::app::App;
use crate::clock::Started;

/// How long after a connection broke the next one is tried.
const REST: Duration = Duration::from_millis(500);
/// How long replaced rules are kept, so that no request that they decide has to take them down.
const RETIRED_FOR: Duration = Duration::from_secs(1);

/// What one server knows of the rules that are stored.
struct Follower {
    app: Arc<App>,
    book: Arc<Book>,
    reader: Reader,
    /// The last version that was read, whether it could be put in force or not.
    seen: Version,
    is_away: bool,
}

/// Puts in force what is stored, for ever.
pub(crate) async fn follow(app: Arc<App>, book: Arc<Book>) {
    let in_force = book.in_force();
    let seen = if in_force.origin == Origin::Database { in_force.version } else { Version::default() };
    let mut follower = Follower { app, book, reader: Reader::default(), seen, is_away: false };
    loop {
        follower.look().await;
        let poll = jittered(follower.book.poll);
        tokio::select! {
            () = follower.book.wake.notified() => {}
            () = tokio::time::sleep(poll) => {}
        }
    }
}

/// Hears of changes from the database, for ever.
pub(crate) async fn hear_database(book: Arc<Book>) {
    loop {
        if let Ok(mut listener) = book.database.listen().await {
            // Something may have been announced before this.
            book.look_again();
            while let Ok(Some(_)) = listener.try_recv().await {
                book.look_again();
            }
        }
        tokio::time::sleep(REST).await;
    }
}

/// Hears of changes from Redis, for ever, if there is one.
pub(crate) async fn hear_redis(book: Arc<Book>) {
    let Some(cache) = &book.cache else { return std::future::pending().await };
    loop {
        if let Err(error) = cache.listen(|| book.look_again()).await {
            tracing::debug!(%error, "announcements through redis are not heard");
        }
        tokio::time::sleep(REST).await;
    }
}

/// Looks again when asked to, for ever.
pub(crate) async fn hear_reload(book: Arc<Book>, asked: Arc<Notify>) {
    loop {
        asked.notified().await;
        book.look_again();
    }
}

/// A little less, and never the same for two servers for long, so that they do not all ask at once.
fn jittered(poll: Duration) -> Duration {
    let part = crate::clock::since_epoch().subsec_nanos() % 1_000;
    poll - poll / 10 * part / 1_000
}

impl Follower {
    async fn look(&mut self) {
        let known = (self.seen != Version::default()).then_some(&self.seen);
        let adopted = match self.reader.read_unless(&self.book.database, known).await {
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
        if !self.is_away && self.seen == self.book.in_force().version {
            *self.book.current_at.lock().unwrap_or_else(PoisonError::into_inner) = Started::now();
            self.book.in_force.send_modify(|in_force| in_force.origin = Origin::Database);
        }
        if let Err(error) = self.keep(adopted).await {
            tracing::debug!(%error, "the rules could not be kept in redis");
        }
    }

    fn reached(&mut self) {
        if std::mem::take(&mut self.is_away) {
            tracing::info!("the database answers again");
        }
    }

    fn lost(&mut self, error: &DatabaseError) {
        self.book.failures.add_one();
        if !std::mem::replace(&mut self.is_away, true) {
            tracing::warn!(%error, "the database cannot be asked; the rules stay as they are");
        }
    }

    /// Another server may reach the database while this one does not.
    async fn look_into_cache(&mut self) {
        let Some(cache) = &self.book.cache else { return };
        let Ok(Some(kept)) = cache.load().await else { return };
        let known = self.book.in_force().version;
        if kept.version.set_id == known.set_id
            && kept.version.revision > known.revision.max(self.seen.revision)
        {
            self.adopt(kept, Origin::Cache).await;
        }
    }

    /// Puts rules in force, unless they cannot be; returns them as they are written.
    async fn adopt(&mut self, stored: Stored, origin: Origin) -> Option<Rules> {
        let version = stored.version.clone();
        self.seen = version.clone();
        let app = Arc::clone(&self.app);
        // All of it takes a while for thousands of rules: not on a thread that decides.
        let adopting = spawn_blocking(move || {
            let rules: RuleSet = stored.compile()?;
            Ok::<_, Unusable>((app.replace_rules(rules), stored.rules))
        });
        let (retired, rules) = match adopting.await {
            Ok(Ok(adopted)) => adopted,
            Ok(Err(unusable)) => {
                tracing::error!(revision = version.revision, error = %unusable, "the stored rules cannot be used; the old ones stay in force");
                self.app.rules_refused(&unusable);
                return None;
            }
            Err(_) => return None,
        };
        tracing::info!(revision = version.revision, rules = rules.rules.len(), "new rules are in force");
        self.book.in_force.send_replace(InForce { version, origin });
        tokio::spawn(async move {
            tokio::time::sleep(RETIRED_FOR).await;
            spawn_blocking(move || drop(retired)).await
        });
        Some(rules)
    }

    /// Keeps what is in force in Redis. Who has it only compiled reads it again, if nobody else has kept it.
    async fn keep(&mut self, rules: Option<Rules>) -> Result<(), CacheError> {
        let (Some(cache), version) = (&self.book.cache, self.book.in_force().version) else { return Ok(()) };
        if cache.refresh(&version).await? || self.is_away || self.seen != version {
            return Ok(());
        }
        let rules = match rules {
            Some(rules) => rules,
            None => match self.reader.read_unless(&self.book.database, None).await {
                Ok(Some(stored)) if stored.version == version => stored.rules,
                // The next time it is another version.
                _ => return Ok(()),
            },
        };
        cache.keep(&version, &rules).await
    }
}
