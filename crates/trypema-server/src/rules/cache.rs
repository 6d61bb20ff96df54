//! The last good rules, kept in Redis: for servers that start, or have to go on, while the database is away.

use std::time::Duration;

use futures_util::StreamExt;
use thiserror::Error;
use tokio::time::timeout;
use trypema::TrypemaError;
use trypema::redis::RedisConnection;
use trypema::redis::client::aio::MultiplexedConnection;
use trypema::redis::client::{AsyncConnectionConfig, Client, RedisError, Value, cmd, pipe};
use trypema::rules::Rules;

use super::database::{SIGN_OF_LIFE, Stored, Version};

/// How long rules are kept that nobody refreshes: longer than any weekend.
const KEPT_FOR_MS: i64 = 7 * 24 * 60 * 60 * 1_000;
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
                .arg(&[&self.name, "set_id", "revision", "change_id", "rules"])
                .query_async(&mut self.connect().await?)
                .await?;
            let [Some(set_id), Some(revision), Some(change_id), Some(rules)] = &kept[..] else {
                return Ok(None);
            };
            let revision = revision.parse().unwrap_or(0);
            let version = Version { set_id: set_id.clone(), revision, change_id: change_id.clone() };
            Ok(Some(Stored { version, rules: serde_json::from_str(rules)?, ..Stored::default() }))
        })
        .await
    }

    /// Keeps what is there for another week, and says how it is to this version.
    pub(crate) async fn refresh(&self, version: &Version) -> Result<Kept, CacheError> {
        within(async {
            let mut connection = self.connect().await?;
            let kept: Vec<Option<String>> = cmd("HMGET")
                .arg(&[&self.name, "set_id", "revision", "change_id"])
                .query_async(&mut connection)
                .await?;
            let [Some(set_id), Some(revision), Some(change_id)] = &kept[..] else { return Ok(Kept::Other) };
            let is_same_set = *set_id == version.set_id;
            if is_same_set && *change_id == version.change_id {
                cmd("PEXPIRE").arg(&self.name).arg(KEPT_FOR_MS).exec_async(&mut connection).await?;
                return Ok(Kept::This);
            }
            let is_later = revision.parse::<u64>().is_ok_and(|revision| revision > version.revision);
            Ok(if is_same_set && is_later { Kept::Later } else { Kept::Other })
        })
        .await
    }

    /// Keeps these rules for a week in place of whatever is there.
    pub(crate) async fn keep(&self, version: &Version, rules: &Rules) -> Result<(), CacheError> {
        within(async {
            let (revision, rules) = (version.revision.to_string(), serde_json::to_string(rules)?);
            let fields = [
                ("set_id", &version.set_id),
                ("revision", &revision),
                ("change_id", &version.change_id),
                ("rules", &rules),
            ];
            let mut keep = pipe();
            keep.atomic().del(&self.name).hset_multiple(&self.name, &fields).pexpire(&self.name, KEPT_FOR_MS);
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
        let (mut asking, mut announcements) = within(async {
            let server = self.redis.server_of(&self.name).await?;
            let mut announcements = Client::open(server)?.get_async_pubsub().await?;
            announcements.subscribe(&self.name).await?;
            Ok(announcements.split())
        })
        .await?;
        heard();
        loop {
            match timeout(SIGN_OF_LIFE, announcements.next()).await {
                Ok(Some(_)) => heard(),
                Ok(None) => return Ok(()),
                // A connection that died silently says nothing, as one that has nothing to say.
                Err(_) => within(async { Ok(asking.ping::<Value>().await?) }).await.map(drop)?,
            }
        }
    }

    /// A connection of its own: rules are megabytes, and decisions must not wait behind them.
    async fn connect(&self) -> Result<MultiplexedConnection, CacheError> {
        let server = self.redis.server_of(&self.name).await?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        Ok(Client::open(server)?.get_multiplexed_async_connection_with_config(&config).await?)
    }
}

/// How what is kept is to a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It is this one.
    This,
    /// It is a later one of the same database.
    Later,
    /// It is nothing, or something else.
    Other,
}

async fn within<T>(work: impl Future<Output = Result<T, CacheError>>) -> Result<T, CacheError> {
    timeout(PATIENCE, work).await.unwrap_or(Err(CacheError::Silent))
}
