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
    /// spent, unless the user may run some of a script's commands and not others
    /// ([`RedisFailure::is_not_permitted`]): then the units may be counted, and the call was not admitted.
    #[error("redis refused the call")]
    Refused,
    /// The reply is malformed. The cost may have been spent.
    #[error("malformed reply from redis")]
    BadReply,
}

/// The error of a script that finds a state in a later format than its own (`script/state.lua`).
const NEWER_STATE: &str = "state was written by a newer version of trypema";

/// The texts by which the supported servers say that an ACL does not permit a command, a key or a channel.
/// Inside scripts, only the last three occur.
const NOT_PERMITTED: [&str; 4] =
    ["NOPERM", "has no permissions to", "No permissions to access", "The user executing the script can't"];

/// Whether this message of a server says that a permission is missing.
pub(super) fn says_not_permitted(message: &str) -> bool {
    NOT_PERMITTED.iter().any(|text| message.contains(text))
}

/// Whether an error of the client means that the Redis user lacks a permission: for a command, a key or a
/// channel, inside a script or not.
///
/// ```
/// use trypema::redis::client::parse_redis_value;
/// use trypema::redis::is_not_permitted;
///
/// let reply = parse_redis_value(b"-NOPERM this user has no permissions to run the 'zadd' command\r\n")?;
/// assert!(is_not_permitted(&reply.extract_error().unwrap_err()));
/// # Ok::<(), trypema::redis::client::RedisError>(())
/// ```
pub fn is_not_permitted(error: &redis::RedisError) -> bool {
    says_not_permitted(&error.to_string())
}

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
        let is_wrong_login = self.source.as_ref().is_some_and(|error| {
            error.kind() == redis::ErrorKind::AuthenticationFailed
                || matches!(error.code(), Some("WRONGPASS" | "NOAUTH"))
        });
        is_wrong_login || self.is_not_permitted()
    }

    /// Whether the Redis user lacks a permission: for a command, a key or a channel. `trypema redis acl`
    /// prints those that it needs.
    pub fn is_not_permitted(&self) -> bool {
        says_not_permitted(&self.message)
    }

    /// Whether the server refused the call because its keys are in several slots of a Cluster.
    pub(crate) fn is_cross_slot(&self) -> bool {
        let cross_slot = redis::ErrorKind::Server(redis::ServerErrorKind::CrossSlot);
        self.source.as_ref().is_some_and(|error| error.kind() == cross_slot)
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

    /// The replies of Redis 6.2 and 7.0, and of Valkey 8, outside and inside scripts.
    #[test]
    fn a_missing_permission_is_recognised_in_the_words_of_every_version() {
        for reply in [
            "-NOPERM this user has no permissions to run the 'zadd' command or its subcommand",
            "-NOPERM this user has no permissions to access one of the keys used as arguments",
            "-NOPERM No permissions to access a channel",
            "-NOPERM User limiter has no permissions to run the 'zadd' command",
            "-ERR Error running script (call to f_e0e1): @user_script:1: @user_script: 1: The user executing the script \
             can't run this command or subcommand",
            "-ERR The user executing the script can't access at least one of the keys mentioned in the command \
             arguments script: e0e1, on @user_script:1.",
            "-ERR ACL failure in script: User limiter has no permissions to run the 'zadd' command script: e0e1, on \
             @user_script:1.",
            "-ERR ACL failure in script: No permissions to access a key",
        ] {
            assert!(failure(reply).is_not_permitted() && failure(reply).is_login_refused(), "{reply}");
        }
        for reply in
            ["-OOM command not allowed", "-WRONGPASS invalid username-password pair", "-ERR syntax error"]
        {
            assert!(!failure(reply).is_not_permitted(), "{reply}");
        }
    }
}
