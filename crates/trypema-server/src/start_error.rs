//! Errors that prevent the server from starting.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;
use trypema::TrypemaError;

use crate::key_hashing::SecretError;
use crate::net::TlsError;
use crate::rules::OpenError;
use crate::token_file::TokenFileError;

/// The reason why the server did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The rules could not be loaded.
    #[error(transparent)]
    Rules(#[from] OpenError),
    /// The limiter could not be built, or Redis rejected the connection.
    #[error(transparent)]
    Store(TrypemaError),
    /// The Redis user lacks permissions that this configuration needs: ACL rules, or what Redis said.
    #[error(
        "redis_url: the Redis user lacks {}; `trypema redis acl` prints the command that gives it what the server needs",
        .0.join(", ")
    )]
    MissingPermissions(Vec<String>),
    /// The TLS certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A listener could not be bound.
    #[error("{setting}: {address}: {source}")]
    Listen {
        /// The setting with the address of the listener.
        setting: &'static str,
        /// The address of the listener.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// No admin token is configured, and a generated one cannot be stored.
    #[error("admin_token: not set, and a token cannot be generated: {0}")]
    Token(#[from] TokenFileError),
    /// Other servers that use the same Redis hash with another secret.
    #[error(transparent)]
    HashSecret(SecretError),
    /// The caller token is the generated admin token in this file.
    #[error("caller_token: a caller token must differ from the generated admin token in {0}")]
    CallerToken(PathBuf),
}

impl StartError {
    /// Whether a retry cannot help, because the configuration itself is wrong.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Tls(_) | Self::Token(_) | Self::HashSecret(_) | Self::CallerToken(_) => true,
            Self::Rules(error) => error.is_final(),
            Self::Store(error) => !matches!(error, TrypemaError::RedisError(_)),
            // The service manager may start the server again, after somebody has changed the user.
            Self::MissingPermissions(_) | Self::Listen { .. } => false,
        }
    }
}

impl From<TrypemaError> for StartError {
    fn from(error: TrypemaError) -> Self {
        match &error {
            TrypemaError::RedisError(failure) if failure.is_not_permitted() => {
                Self::MissingPermissions(vec![format!("a permission ({failure})")])
            }
            _ => Self::Store(error),
        }
    }
}
