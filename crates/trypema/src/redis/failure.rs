//! Failures of calls to Redis.

use std::sync::Arc;

use thiserror::Error;

/// A call that Redis did not answer with a decision. A denial is a decision, never a failure.
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

/// The known effect of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum RedisFailureKind {
    /// The call was not sent, or the server was not ready and did not run it. Nothing was spent.
    #[error("redis is unavailable")]
    Unavailable,
    /// The call was sent and no reply arrived in time. The cost may have been spent, and the call is not
    /// sent again.
    #[error("no reply from redis, the outcome is unknown")]
    OutcomeUnknown,
    /// Redis refused to run the call (out of memory, wrong type, read-only, no permission, …). Nothing was
    /// spent.
    #[error("redis refused the call")]
    Refused,
    /// The reply is malformed. The cost may have been spent.
    #[error("malformed reply from redis")]
    BadReply,
}

/// The error of a script that finds a state in a later format than its own (`script/state.lua`).
const NEWER_STATE: &str = "state was written by a newer version of trypema";

impl RedisFailure {
    pub(crate) fn new(kind: RedisFailureKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Returns a failure of this kind that was caused by an error of the client. For a [`NEWER_STATE`]
    /// error, the message omits the script name and line that Redis adds.
    pub(crate) fn from_client(kind: RedisFailureKind, error: redis::RedisError) -> Self {
        let text = error.to_string();
        let message = if text.contains(NEWER_STATE) { NEWER_STATE.into() } else { text.into() };
        Self { kind, message, source: Some(Arc::new(error)) }
    }

    /// Returns the failure with the address of its server before the message.
    pub(crate) fn at(self, address: &redis::ConnectionAddr) -> Self {
        Self { message: format!("{address}: {}", self.message).into(), ..self }
    }

    /// Returns what is known about the effect of the call.
    pub fn kind(&self) -> RedisFailureKind {
        self.kind
    }

    /// Whether the server refused the credentials, or the user lacks a permission. Retrying does not help.
    pub fn is_login_refused(&self) -> bool {
        self.source.as_ref().is_some_and(|error| {
            error.kind() == redis::ErrorKind::AuthenticationFailed
                || matches!(error.code(), Some("WRONGPASS" | "NOAUTH" | "NOPERM"))
        })
    }

    /// Whether a retry may succeed and cannot count anything twice.
    pub fn is_retryable(&self) -> bool {
        self.kind == RedisFailureKind::Unavailable
    }
}

/// Failures are equal if their kind and message are equal; the source is ignored.
impl PartialEq for RedisFailure {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.message == other.message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(reply: &str) -> RedisFailure {
        let error = redis::parse_redis_value(format!("{reply}\r\n").as_bytes())
            .and_then(|value| value.extract_error());
        RedisFailure::from_client(RedisFailureKind::Refused, error.expect_err("an error reply"))
    }

    #[test]
    fn a_newer_state_is_told_in_the_same_words_whatever_the_server_adds() {
        assert!(include_str!("script/state.lua").contains(NEWER_STATE));
        for reply in [
            format!("-ERR {NEWER_STATE} script: e0e1, on @user_script:31."),
            format!("-ERR Error running script (call to f_e0e1): @user_script:31: {NEWER_STATE}"),
        ] {
            assert_eq!(failure(&reply).to_string(), format!("redis refused the call: {NEWER_STATE}"));
        }
        let other = failure("-OOM command not allowed when used memory > 'maxmemory'.").to_string();
        assert!(other.contains("OOM") && !other.contains(NEWER_STATE), "{other}");
    }
}
