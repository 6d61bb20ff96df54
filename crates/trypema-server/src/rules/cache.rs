//! The last good rules, kept in Redis: for servers that start, or have to go on, while the database is away.

use std::time::Duration;

use futures_util::StreamExt;
use thiserror::Error;
use tokio::time::timeout;
use trypema::TrypemaError;
use trypema::redis::RedisConnection;
use trypema::redis::client::aio::MultiplexedConnection;
use trypema::redis::client::{Client, RedisError, cmd, pipe};
use trypema::rules::Rules;

use super::database::{Stored, Version};

/// How long rules are kept that nobody refreshes: longer than any weekend.
const KEPT_FOR_MS: u64 = 7 * 24 * 60 * 60 * 1_000;
/// How long Redis may take; some megabytes are sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the last good rules are kept, and changes of them are announced.
#[derive(Debug)]
pub(crate) struct Cache {
    redis: RedisConnection,
    /// Of the rules, and of the channel. No counter has such a name: theirs have braces.
    name: String,
}

/// Why the cache could not be used.
#[derive(Debug, Error)]
pub(crate) enum CacheError {
    #[error("{0}")]
    Address(#[from] TrypemaError),
    #[error("{0}")]
    Redis(#[from] RedisError),
    #[error("redis does not answer within {PATIENCE:?}")]
    Silent,
    #[error("what is kept in redis cannot be understood: {0}")]
    Unreadable(#[from] serde_json::Error),
}

impl Cache {
    pub(crate) fn new(url: &str, prefix: &str) -> Result<Self, TrypemaError> {
        Ok(Self { redis: RedisConnection::lazy(url)?, name: format!("{prefix}:rules") })
    }

    /// The rules that are kept, if there are any.
    pub(crate) async fn load(&self) -> Result<Option<Stored>, CacheError> {
        within(async {
            let kept: Vec<Option<String>> = cmd("HMGET")
                .arg(&[&self.name, "set_id", "revision", "rules"])
                .query_async(&mut self.connect().await?)
                .await?;
            let [Some(set_id), Some(revision), Some(rules)] = &kept[..] else { return Ok(None) };
            let version = Version { set_id: set_id.clone(), revision: revision.parse().unwrap_or(0) };
            Ok(Some(Stored { version, rules: serde_json::from_str(rules)?, ..Stored::default() }))
        })
        .await
    }

    /// Keeps what is there for another week; false if that is another version.
    pub(crate) async fn refresh(&self, version: &Version) -> Result<bool, CacheError> {
        within(async {
            let mut connection = self.connect().await?;
            let kept: Vec<Option<String>> =
                cmd("HMGET").arg(&[&self.name, "set_id", "revision"]).query_async(&mut connection).await?;
            if kept != [Some(version.set_id.clone()), Some(version.revision.to_string())] {
                return Ok(false);
            }
            cmd("PEXPIRE").arg(&self.name).arg(KEPT_FOR_MS).exec_async(&mut connection).await?;
            Ok(true)
        })
        .await
    }

    /// Keeps these rules for a week in place of any others: who keeps some has just read them, and a database that was restored
    /// has an earlier revision than before.
    pub(crate) async fn keep(&self, version: &Version, rules: &Rules) -> Result<(), CacheError> {
        within(async {
            let (revision, rules) = (version.revision.to_string(), serde_json::to_string(rules)?);
            let fields = [("set_id", &version.set_id), ("revision", &revision), ("rules", &rules)];
            let mut keep = pipe();
            keep.atomic().hset_multiple(&self.name, &fields).pexpire(&self.name, KEPT_FOR_MS as i64);
            Ok(keep.exec_async(&mut self.connect().await?).await?)
        })
        .await
    }

    /// Tells all servers that there is a new revision.
    pub(crate) async fn announce(&self, revision: u64) -> Result<(), CacheError> {
        within(async {
            let mut publish = cmd("PUBLISH");
            publish.arg(&self.name).arg(revision).exec_async(&mut self.connect().await?).await?;
            Ok(())
        })
        .await
    }

    /// Calls `heard` for every announcement, and once at the start; ends when the connection does.
    pub(crate) async fn listen(&self, heard: impl Fn()) -> Result<(), CacheError> {
        let mut announcements = within(async {
            let server = self.redis.server_of(&self.name).await?;
            let mut announcements = Client::open(server)?.get_async_pubsub().await?;
            announcements.subscribe(&self.name).await?;
            Ok(announcements)
        })
        .await?;
        heard();
        let mut announcements = announcements.on_message();
        while announcements.next().await.is_some() {
            heard();
        }
        Ok(())
    }

    /// A connection of its own: rules are megabytes, and decisions must not wait behind them.
    async fn connect(&self) -> Result<MultiplexedConnection, CacheError> {
        let server = self.redis.server_of(&self.name).await?;
        Ok(Client::open(server)?.get_multiplexed_async_connection().await?)
    }
}

async fn within<T>(work: impl Future<Output = Result<T, CacheError>>) -> Result<T, CacheError> {
    timeout(PATIENCE, work).await.unwrap_or(Err(CacheError::Silent))
}
