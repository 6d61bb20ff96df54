//! Why the service did not start.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;
use trypema::TrypemaError;
use trypema::rules::InvalidRules;

use crate::net::TlsError;
use crate::rules::{OpenError, SourceError};
use crate::token_file::TokenFileError;

/// Why the service did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The rules.
    #[error(transparent)]
    Rules(#[from] InvalidRules),
    /// The database that has them.
    #[error(transparent)]
    Database(#[from] OpenError),
    /// Redis.
    #[error(transparent)]
    Store(#[from] TrypemaError),
    /// HTTPS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address of the check listener.
    #[error("listen: {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The address of the administration listener.
    #[error("admin_listen: {address}: {source}")]
    AdminListen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// A token was to be generated, and cannot be kept.
    #[error("admin_token: is missing, and none can be generated: {0}")]
    Token(#[from] TokenFileError),
}

impl StartError {
    /// Whether trying again later cannot help: something was written down wrong.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Rules(_) | Self::Tls(_) | Self::Token(_) => true,
            Self::Database(error) => error.is_final(),
            Self::Store(error) => !matches!(error, TrypemaError::RedisError(_)),
            Self::Listen { .. } | Self::AdminListen { .. } => false,
        }
    }
}

impl From<SourceError> for StartError {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::File(error) => Self::Rules(error),
            SourceError::Database(error) => Self::Database(error),
        }
    }
}
