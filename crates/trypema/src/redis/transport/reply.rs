//! Classifies replies and client errors by their effect: whether the call ran, did not run, or may have
//! run.

use ::redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

use crate::redis::{RedisFailure, RedisFailureKind};

/// The result of a command.
#[derive(Debug, PartialEq)]
pub(super) enum CommandOutcome {
    /// The command ran.
    Value(Value),
    /// The command did not run: the server does not know the script.
    NoScript,
    /// The command did not run: the node at this address owns the slot.
    Moved(String),
    /// The command did not run: the slot is moving to the node at this address.
    Ask(String),
    /// The command did not run: the server is a replica.
    ReadOnly(RedisFailure),
    /// The command did not run, because the server or its cluster is not ready. The caller may try again.
    NotReady(RedisFailure),
    /// The server refused the command. Nothing was written, because scripts write last.
    Refused(RedisFailure),
    /// The command was never sent: the caller's connection manager has no connection.
    NotSent(RedisFailure),
    /// The connection broke. The command may have run.
    Lost(RedisFailure),
}

impl CommandOutcome {
    pub(super) fn from_result(result: RedisResult<Value>) -> Self {
        match result {
            Ok(Value::ServerError(error)) => Self::from_server_error(error.into()),
            Ok(value) => Self::Value(value),
            Err(error) => Self::from_client_error(error),
        }
    }

    fn from_server_error(error: RedisError) -> Self {
        let address = error.redirect_node().map(|(address, _)| address.to_owned());
        let refused = |error| RedisFailure::from_client(RedisFailureKind::Refused, error);
        match (error.kind(), address) {
            (ErrorKind::Server(ServerErrorKind::NoScript), _) => Self::NoScript,
            (ErrorKind::Server(ServerErrorKind::Moved), Some(address)) => Self::Moved(address),
            (ErrorKind::Server(ServerErrorKind::Ask), Some(address)) => Self::Ask(address),
            (
                ErrorKind::Server(
                    ServerErrorKind::BusyLoading
                    | ServerErrorKind::ClusterDown
                    | ServerErrorKind::MasterDown
                    | ServerErrorKind::TryAgain,
                ),
                _,
            ) => Self::NotReady(RedisFailure::from_client(RedisFailureKind::Unavailable, error)),
            _ if is_read_only(&error) => Self::ReadOnly(refused(error)),
            _ => Self::Refused(refused(error)),
        }
    }

    fn from_client_error(error: RedisError) -> Self {
        if error.is_connection_refusal() {
            return Self::NotSent(RedisFailure::from_client(RedisFailureKind::Unavailable, error));
        }
        let kind = match error.kind() {
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => RedisFailureKind::BadReply,
            _ => RedisFailureKind::OutcomeUnknown,
        };
        Self::Lost(RedisFailure::from_client(kind, error))
    }
}

/// Whether the server is a replica. Redis 6.2 wraps the error of a command inside a script in another
/// error.
fn is_read_only(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || error.detail().is_some_and(|detail| detail.contains(" -READONLY "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(reply: &str) -> CommandOutcome {
        CommandOutcome::from_result(::redis::parse_redis_value(format!("{reply}\r\n").as_bytes()))
    }

    fn kind(reply: &str) -> RedisFailureKind {
        match answer(reply) {
            CommandOutcome::Refused(failure)
            | CommandOutcome::NotReady(failure)
            | CommandOutcome::Lost(failure) => failure.kind(),
            other => panic!("{reply} gives {other:?}"),
        }
    }

    #[test]
    fn replies_that_prove_that_nothing_ran() {
        assert_eq!(answer("-NOSCRIPT No matching script. Please use EVAL."), CommandOutcome::NoScript);
        assert_eq!(answer("-MOVED 12182 127.0.0.1:7002"), CommandOutcome::Moved("127.0.0.1:7002".into()));
        assert_eq!(answer("-ASK 12182 ::1:7002"), CommandOutcome::Ask("::1:7002".into()));
        for reply in [
            "-TRYAGAIN Multiple keys request during rehashing of slot",
            "-CLUSTERDOWN The cluster is down",
            "-LOADING Redis is loading the dataset in memory",
            "-MASTERDOWN Link with MASTER is down",
        ] {
            assert!(matches!(answer(reply), CommandOutcome::NotReady(_)), "{reply}");
            assert_eq!(kind(reply), RedisFailureKind::Unavailable);
        }
    }

    #[test]
    fn replicas_are_recognised_inside_a_script_too() {
        for reply in [
            "-READONLY You can't write against a read only replica.",
            "-READONLY You can't write against a read only replica. script: e0e1, on @user_script:1.",
            "-ERR Error running script (call to f_e0e1): @user_script:1: @user_script: 1: -READONLY You can't write \
             against a read only replica.",
        ] {
            assert!(matches!(answer(reply), CommandOutcome::ReadOnly(_)), "{reply}");
        }
    }

    #[test]
    fn other_errors_are_refusals() {
        for reply in [
            "-OOM command not allowed when used memory > 'maxmemory'.",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
            "-NOPERM this user has no permissions to run the 'evalsha' command",
            "-MISCONF Redis is configured to save RDB snapshots",
            "-ERR value is not an integer",
            "-MOVED",
            "-MOVED nowhere",
            "-",
        ] {
            assert!(matches!(answer(reply), CommandOutcome::Refused(_)), "{reply}");
            assert_eq!(kind(reply), RedisFailureKind::Refused);
        }
    }

    #[test]
    fn a_broken_connection_leaves_the_outcome_open_and_nonsense_is_a_bad_reply() {
        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let CommandOutcome::Lost(failure) = CommandOutcome::from_result(Err(broken.into())) else {
            panic!("not lost")
        };
        assert_eq!(failure.kind(), RedisFailureKind::OutcomeUnknown);
        assert_eq!(kind("?nonsense"), RedisFailureKind::BadReply);
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(matches!(CommandOutcome::from_result(Err(refused.into())), CommandOutcome::NotSent(_)));
    }
}
