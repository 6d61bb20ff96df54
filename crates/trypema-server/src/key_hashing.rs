//! The secret with which the values of hashed attributes are hashed, and whether all servers of a Redis have the same.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::time::timeout;
use trypema::TrypemaError;
use trypema::redis::client::{Client, RedisError, cmd};
use trypema::redis::{RedisConnection, RedisKey};
use trypema::rules::HashedAttributes;

use crate::secret::Secret;
use crate::settings::DEFAULT_REDIS_PREFIX;

/// The time that Redis has to answer.
const REDIS_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval at which a server asks again that could not ask at its start.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The hashed attributes, and the secret in force before this one.
#[derive(Debug, Clone)]
pub(crate) struct KeyHashing {
    pub(crate) hashed: Arc<HashedAttributes>,
    previous_fingerprint: Option<String>,
}

/// The reason why the secret could not be compared with that of the other servers.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The servers that use this Redis have another secret.
    #[error(
        "hash_secret: the servers that use this Redis have another secret, so each key would have a second counter; \
         to change the secret, set previous_hash_secret to the old one until all servers have the new one"
    )]
    Different,
    /// The address of Redis is malformed, or no server answers there.
    #[error("{0}")]
    Address(#[from] TrypemaError),
    /// Redis refused a command, or the connection broke.
    #[error("{0}")]
    Redis(#[from] RedisError),
    /// Redis did not answer in time.
    #[error("Redis did not answer within {} s", REDIS_TIMEOUT.as_secs())]
    Timeout,
}

impl KeyHashing {
    pub(crate) fn new(secret: &str, previous: Option<&str>, attributes: BTreeSet<String>) -> Self {
        let previous_fingerprint =
            previous.map(|secret| HashedAttributes::new(secret.as_bytes(), [""; 0]).fingerprint());
        Self { hashed: Arc::new(HashedAttributes::new(secret.as_bytes(), attributes)), previous_fingerprint }
    }

    /// Compares the secret with that of the servers that use the same Redis and prefix. The first server leaves its
    /// fingerprint there. One that knows that secret as its previous one replaces it.
    pub(crate) async fn compare(&self, url: &Secret, prefix: Option<&RedisKey>) -> Result<(), SecretError> {
        timeout(REDIS_TIMEOUT, self.compare_in(url, prefix)).await.unwrap_or(Err(SecretError::Timeout))
    }

    async fn compare_in(&self, url: &Secret, prefix: Option<&RedisKey>) -> Result<(), SecretError> {
        let prefix = prefix.map_or(DEFAULT_REDIS_PREFIX, RedisKey::as_str);
        // No counter has such a name: theirs have braces.
        let name = format!("{prefix}:hash-secret");
        let server = RedisConnection::lazy(url.reveal())?.server_of(&name).await?;
        let mut connection = Client::open(server)?.get_multiplexed_async_connection().await?;
        let own = self.hashed.fingerprint();
        cmd("SET").arg(&name).arg(&own).arg("NX").exec_async(&mut connection).await?;
        let stored: Option<String> = cmd("GET").arg(&name).query_async(&mut connection).await?;
        if stored.as_ref() == Some(&own) {
            return Ok(());
        }
        if stored != self.previous_fingerprint {
            return Err(SecretError::Different);
        }
        Ok(cmd("SET").arg(&name).arg(&own).exec_async(&mut connection).await?)
    }

    /// Compares the secret once Redis answers. Returns if it is another one, which stops the server.
    pub(crate) async fn compare_later(self, url: Secret, prefix: Option<RedisKey>) {
        loop {
            tokio::time::sleep(RETRY_INTERVAL).await;
            match self.compare(&url, prefix.as_ref()).await {
                Ok(()) => return std::future::pending().await,
                Err(error @ SecretError::Different) => return tracing::error!("store: {error}"),
                Err(error) => {
                    tracing::debug!("store: cannot compare hash_secret with other servers ({error})")
                }
            }
        }
    }
}
