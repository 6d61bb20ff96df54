//! A cache of the last valid rules in Redis, for servers that start or run while the database is
//! unreachable.
//!
//! The cache is one hash. Its fields `format`, `set_id`, `revision` and `change_id` mean the same in every
//! format, so that a server of any version can compare an entry with its own rules. The format describes the
//! field `rules`: in format 1 it is [`Rules`] in JSON.
//!
//! A server ignores an entry of a newer format, and does not replace it by its own entry of the same revision.
//! The newer server may store properties of rules that the older one cannot express.

mod permissions;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use thiserror::Error;
use tokio::time::timeout;
use trypema::TrypemaError;
use trypema::redis::client::aio::{MultiplexedConnection, PubSub};
use trypema::redis::client::{
    AsyncConnectionConfig, Client, ErrorKind, FromRedisValue, Pipeline, RedisError, ServerErrorKind, Value,
    cmd, pipe,
};
use trypema::redis::{RedisConnection, is_not_permitted};
use trypema::rules::Rules;

pub(crate) use self::permissions::CACHE_COMMANDS;
use super::database::{KEEPALIVE_INTERVAL, PING_TIMEOUT, StoredRules, Version};
use crate::background_worker::{BackgroundWorkers, Worker, WorkerError};

/// The format that this server reads and writes.
const FORMAT: u64 = 1;
/// The fields that mean the same in every format, in the order that [`Header::new`] expects.
const HEADER: [&str; 4] = ["format", "set_id", "revision", "change_id"];

/// The time to live of an entry that no server refreshes: longer than any weekend.
const CACHE_TTL_MS: i64 = 7 * 24 * 60 * 60 * 1_000;
/// The timeout of a call to Redis, which may transfer megabytes.
const REDIS_TIMEOUT: Duration = Duration::from_secs(5);

/// The cache of the last valid rules, and the channel that announces changes.
#[derive(Debug)]
pub(crate) struct Cache {
    redis: RedisConnection,
    prefix: String,
    /// The name of the hash and of the channel. No counter has such a name, because the names of counters
    /// contain braces.
    name: String,
    /// The connection of the last call. It is separate from those of decisions: the rules may have megabytes, and
    /// decisions must not wait behind them.
    kept: Mutex<Option<MultiplexedConnection>>,
    /// The threads for long work on what was read.
    workers: Arc<BackgroundWorkers>,
}

/// The reason why the cache could not be used.
#[derive(Debug, Error)]
pub(crate) enum CacheError {
    #[error("{0}")]
    Address(#[from] TrypemaError),
    #[error("{0}")]
    Redis(#[from] RedisError),
    #[error("Redis did not answer within {} s", REDIS_TIMEOUT.as_secs())]
    Timeout,
    #[error("{0}")]
    Worker(#[from] WorkerError),
    #[error("the rule cache in Redis is malformed: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("the cached rule set has format {0:?}, and this server reads {FORMAT}")]
    NewerFormat(String),
}

impl CacheError {
    /// Whether the Redis user lacks a permission.
    pub(crate) fn is_not_permitted(&self) -> bool {
        match self {
            Self::Address(TrypemaError::RedisError(failure)) => failure.is_not_permitted(),
            Self::Redis(error) => is_not_permitted(error),
            _ => false,
        }
    }
}

impl Cache {
    pub(crate) fn new(
        url: &str,
        prefix: &str,
        workers: Arc<BackgroundWorkers>,
    ) -> Result<Self, TrypemaError> {
        Ok(Self {
            redis: RedisConnection::lazy(url)?,
            name: format!("{prefix}:rules"),
            prefix: prefix.to_owned(),
            kept: Mutex::new(None),
            workers,
        })
    }

    /// Returns the cached rules, if there are any.
    ///
    /// # Errors
    ///
    /// Redis does not answer, or this server cannot read the entry.
    pub(crate) async fn load(&self) -> Result<Option<StoredRules>, CacheError> {
        // A single command, because another server may replace the entry at any moment.
        let (mut fields,): (Vec<Option<Vec<u8>>>,) =
            self.call(pipe().cmd("HMGET").arg(&self.name).arg(&HEADER).arg("rules")).await?;
        let Some(header) = Header::new(&fields) else { return Ok(None) };
        if let Some(format) = header.newer_format {
            return Err(CacheError::NewerFormat(format));
        }
        let Some(Some(rules)) = fields.pop() else { return Ok(None) };
        let rules = self.workers.run(Worker::Changes, move || serde_json::from_slice(&rules)).await??;
        Ok(Some(StoredRules { version: header.version, rules, ..StoredRules::default() }))
    }

    /// Compares the entry with `version`. If they are the same, the entry is kept for another week.
    pub(crate) async fn refresh(&self, version: &Version) -> Result<CacheState, CacheError> {
        let (fields,): (Vec<Option<Vec<u8>>>,) =
            self.call(pipe().cmd("HMGET").arg(&self.name).arg(&HEADER)).await?;
        let state = Header::new(&fields).map_or(CacheState::Other, |header| header.compare_with(version));
        if state == CacheState::Same {
            self.call::<()>(pipe().pexpire(&self.name, CACHE_TTL_MS)).await?;
        }
        Ok(state)
    }

    /// Writes these rules for a week, replacing any entry.
    pub(crate) async fn store(&self, version: &Version, rules: Arc<Rules>) -> Result<(), CacheError> {
        let rules = self.workers.run(Worker::Changes, move || serde_json::to_string(&*rules)).await??;
        let revision = version.revision.to_string();
        let fields = [
            ("format", &FORMAT.to_string()),
            ("set_id", &version.set_id),
            ("revision", &revision),
            ("change_id", &version.change_id),
            ("rules", &rules),
        ];
        let mut write = pipe();
        write.atomic().del(&self.name);
        // Not `hset_multiple`, which sends `HMSET`.
        write.cmd("HSET").arg(&self.name).arg(&fields);
        write.pexpire(&self.name, CACHE_TTL_MS);
        self.call(&write).await
    }

    /// Announces a new revision to all servers.
    pub(crate) async fn announce(&self, revision: u64) -> Result<(), CacheError> {
        self.call(pipe().publish(&self.name, revision)).await
    }

    /// Calls `on_announcement` for every announcement, with its revision, and once at the start. Returns when the
    /// connection ends.
    pub(crate) async fn listen(&self, on_announcement: impl Fn(Option<u64>)) -> Result<(), CacheError> {
        let (mut connection, mut announcements) = with_timeout(self.subscribe()).await?.split();
        on_announcement(None);
        loop {
            match timeout(KEEPALIVE_INTERVAL, announcements.next()).await {
                Ok(Some(message)) => on_announcement(message.get_payload().ok()),
                Ok(None) => return Ok(()),
                // A connection that died silently looks like one without announcements, so check it with a
                // ping.
                Err(_) => with_timeout(async { Ok(connection.ping::<Value>().await?) }).await.map(drop)?,
            }
        }
    }

    /// Sends `commands` on the kept connection. If that has ended, or its server is no longer the right one, sends them
    /// on a new connection, and keeps that one. So commands may run twice, and must allow that.
    async fn call<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, CacheError> {
        with_timeout(async {
            // Taken, so that a connection without a response is not used again.
            let kept = self.kept().take();
            if let Some(kept) = if_alive(kept).await {
                match self.send(kept, commands).await {
                    Err(error) if needs_another_connection(&error) => {}
                    sent => return Ok(sent?),
                }
            }
            Ok(self.send(self.connect().await?, commands).await?)
        })
        .await
    }

    /// Sends `commands` on a connection, and keeps it for the next ones.
    async fn send<T: FromRedisValue>(
        &self,
        mut connection: MultiplexedConnection,
        commands: &Pipeline,
    ) -> Result<T, RedisError> {
        let sent = commands.query_async(&mut connection).await;
        if !sent.as_ref().is_err_and(needs_another_connection) {
            *self.kept() = Some(connection);
        }
        sent
    }

    fn kept(&self) -> MutexGuard<'_, Option<MultiplexedConnection>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection that receives announcements.
    async fn subscribe(&self) -> Result<PubSub, CacheError> {
        let server = self.redis.server_of(&self.name).await?;
        let mut announcements = Client::open(server)?.get_async_pubsub().await?;
        announcements.subscribe(&self.name).await?;
        Ok(announcements)
    }

    async fn connect(&self) -> Result<MultiplexedConnection, CacheError> {
        let server = self.redis.server_of(&self.name).await?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(REDIS_TIMEOUT))
            .set_response_timeout(Some(REDIS_TIMEOUT));
        Ok(Client::open(server)?.get_multiplexed_async_connection_with_config(&config).await?)
    }
}

/// Returns a kept connection if it still works: Redis may have restarted, or a firewall may have dropped the connection.
async fn if_alive(kept: Option<MultiplexedConnection>) -> Option<MultiplexedConnection> {
    let mut connection = kept?;
    let ping = timeout(PING_TIMEOUT, cmd("PING").exec_async(&mut connection)).await;
    ping.is_ok_and(|ping| ping.is_ok()).then_some(connection)
}

/// Whether commands that failed may succeed on another connection: this one has ended, or a failover or a moved Cluster
/// slot has made another server the right one. Any connection would report a lack of permission or of memory.
fn needs_another_connection(error: &RedisError) -> bool {
    !matches!(error.kind(), ErrorKind::Server(ServerErrorKind::NoPerm) | ErrorKind::Extension)
}

/// The fields of an entry that every format has.
#[derive(Debug)]
struct Header {
    version: Version,
    /// The format, if this server cannot read it.
    newer_format: Option<String>,
}

impl Header {
    /// Parses the fields of [`HEADER`]. Returns `None` if a required field is missing.
    fn new(fields: &[Option<Vec<u8>>]) -> Option<Self> {
        let [Some(format), Some(set_id), Some(revision), Some(change_id), ..] = fields else { return None };
        let text = |field: &Vec<u8>| String::from_utf8_lossy(field).into_owned();
        let revision = text(revision).parse().unwrap_or(0);
        Some(Self {
            version: Version { set_id: text(set_id), revision, change_id: text(change_id) },
            newer_format: Some(text(format))
                .filter(|format| !format.parse::<u64>().is_ok_and(|format| format <= FORMAT)),
        })
    }

    /// Compares the entry with the rules of this version.
    fn compare_with(&self, version: &Version) -> CacheState {
        let is_same_set = self.version.set_id == version.set_id;
        if is_same_set && self.version.change_id == version.change_id {
            return self.newer_format.clone().map_or(CacheState::Same, CacheState::NewerFormat);
        }
        if is_same_set && self.version.revision > version.revision {
            CacheState::Later
        } else {
            CacheState::Other
        }
    }
}

/// The result of comparing a cached rule set with a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CacheState {
    /// The same version.
    Same,
    /// The same version, which a newer server wrote in this format.
    NewerFormat(String),
    /// A later revision of the same database.
    Later,
    /// No entry, or an unrelated or older one.
    Other,
}

async fn with_timeout<T>(work: impl Future<Output = Result<T, CacheError>>) -> Result<T, CacheError> {
    timeout(REDIS_TIMEOUT, work).await.unwrap_or(Err(CacheError::Timeout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(format: &str, revision: &str, change_id: &str) -> Header {
        let fields = [format, "set", revision, change_id].map(|text| Some(text.as_bytes().to_vec()));
        Header::new(&fields).unwrap()
    }

    #[test]
    fn only_this_format_is_read() {
        let newer = |format| header(format, "1", "a").newer_format;
        assert_eq!(newer("1"), None);
        for unknown in ["2", "18446744073709551616", "-1", "", "one"] {
            assert_eq!(newer(unknown).as_deref(), Some(unknown));
        }
    }

    #[test]
    fn only_this_very_revision_is_left_in_a_newer_format() {
        let ours = Version { set_id: "set".to_owned(), revision: 5, change_id: "five".to_owned() };
        let compared = |format, revision, change_id| header(format, revision, change_id).compare_with(&ours);
        assert_eq!(compared("1", "5", "five"), CacheState::Same);
        assert_eq!(compared("2", "5", "five"), CacheState::NewerFormat("2".to_owned()));
        assert_eq!(compared("2", "4", "four"), CacheState::Other);
        assert_eq!(compared("2", "5", "lost"), CacheState::Other);
        assert_eq!(compared("2", "6", "six"), CacheState::Later);
        let stranger = Version { set_id: "another".to_owned(), ..ours.clone() };
        assert_eq!(header("2", "6", "six").compare_with(&stranger), CacheState::Other);
    }
}
