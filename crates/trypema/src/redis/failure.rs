//! Why Redis gave no answer.

use std::sync::Arc;

use thiserror::Error;

/// A call that Redis did not answer with a decision. Never a denial: that is a decision.
///
/// ```
/// use trypema::redis::{RedisFailure, RedisFailureKind};
///
/// fn is_safe_to_ask_again(failure: &RedisFailure) -> bool {
///     failure.kind() == RedisFailureKind::Unavailable // nothing was spent
/// }
/// ```
#[derive(Debug, Clone, Error)]
#[error("{kind}: {message}")]
pub struct RedisFailure {
    kind: RedisFailureKind,
    message: Arc<str>,
    #[source]
    source: Option<Arc<redis::RedisError>>,
}

/// What is known about a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum RedisFailureKind {
    /// The call was never sent: nothing was spent.
    #[error("redis is unavailable")]
    Unavailable,
    /// The call was sent and no reply came in time: it may have been spent, and is not sent again.
    #[error("no reply from redis, the outcome is unknown")]
    OutcomeUnknown,
    /// Redis refused to run the call (out of memory, wrong type, read only, no permission …): nothing was spent.
    #[error("redis refused the call")]
    Refused,
    /// The reply cannot be understood: it may have been spent.
    #[error("redis sent a reply that makes no sense")]
    BadReply,
}

impl RedisFailure {
    pub(crate) fn new(kind: RedisFailureKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same kind of failure, caused by an error of the client.
    pub(crate) fn from_client(kind: RedisFailureKind, error: redis::RedisError) -> Self {
        Self { kind, message: error.to_string().into(), source: Some(Arc::new(error)) }
    }

    /// What is known about the call.
    pub fn kind(&self) -> RedisFailureKind {
        self.kind
    }

    /// Whether the server does not know who we are: that will not change by itself.
    pub fn is_login_refused(&self) -> bool {
        self.source.as_ref().is_some_and(|error| {
            error.kind() == redis::ErrorKind::AuthenticationFailed
                || matches!(error.code(), Some("WRONGPASS" | "NOAUTH" | "NOPERM"))
        })
    }

    /// Whether asking again cannot count anything twice and may help.
    pub fn is_retryable(&self) -> bool {
        self.kind == RedisFailureKind::Unavailable
    }
}

/// Two failures are the same when they say the same.
impl PartialEq for RedisFailure {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.message == other.message
    }
}
