//! Checks the version of a server, and that it is no node of a Cluster and no sentinel.

use std::time::Duration;

use ::redis::Value;

use super::dial::SharedConnection;
use super::{IS_CLUSTER_NODE, refused, within};
use crate::redis::{RedisFailure, RedisFailureKind};

/// The oldest supported version, and the oldest that the tests run on.
const OLDEST: (u32, u32) = (6, 2);

/// The time that a server has to report about itself.
const BUDGET: Duration = Duration::from_secs(1);

/// The kind of a server by the address that it is used with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UsedAs {
    SingleServer,
    ClusterNode,
}

/// Refuses a server that is too old, or of another kind. What a server does not reveal is accepted.
pub(super) async fn check(connection: &SharedConnection, used_as: UsedAs) -> Result<(), RedisFailure> {
    let mut command = ::redis::cmd("INFO");
    command.arg("server");
    let reply = match within(BUDGET, connection.send(&command)).await {
        Some(Ok(reply)) => reply,
        Some(Err(error)) => return Err(RedisFailure::from_client(RedisFailureKind::Unavailable, error)),
        None => return Err(RedisFailure::new(RedisFailureKind::Unavailable, "no reply to INFO within 1 s")),
    };
    match (text(&reply).and_then(mode), used_as) {
        (Some("cluster"), UsedAs::SingleServer) => return Err(refused(IS_CLUSTER_NODE)),
        (Some("sentinel"), _) => {
            return Err(refused("the server is a sentinel; connect with `redis+sentinel://…/service`"));
        }
        _ => {}
    }
    match text(&reply).and_then(version) {
        Some((version, number)) if number < OLDEST => Err(RedisFailure::new(
            RedisFailureKind::Refused,
            format!("need Redis {}.{} or later, found {version}", OLDEST.0, OLDEST.1),
        )),
        _ => Ok(()),
    }
}

fn text(reply: &Value) -> Option<&str> {
    match reply {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// Returns the version as text, and its first two numbers.
fn version(info: &str) -> Option<(&str, (u32, u32))> {
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"))?.trim();
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((version, (numbers.next()??, numbers.next()??)))
}

/// Returns the mode: `standalone`, `cluster` or `sentinel`.
fn mode(info: &str) -> Option<&str> {
    let names = ["redis_mode:", "server_mode:"];
    info.lines().find_map(|line| names.iter().find_map(|name| line.strip_prefix(name))).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_is_named_by_redis_and_by_valkey() {
        assert_eq!(mode("# Server\r\nredis_version:7.0.15\r\nredis_mode:cluster\r\nos:x"), Some("cluster"));
        assert_eq!(
            mode("redis_version:7.2.4\r\nserver_name:valkey\r\nserver_mode:sentinel"),
            Some("sentinel")
        );
        assert_eq!(mode("redis_version:7.2.4"), None);
    }

    #[test]
    fn the_version_is_two_numbers_in_order() {
        let number = |version_line: &str| {
            version(&format!("# Server\r\n{version_line}\r\nos:x\r\n")).map(|found| found.1)
        };
        assert_eq!(number("redis_version:6.0.16"), Some((6, 0)));
        assert_eq!(number("redis_version:6.2.5"), Some((6, 2)));
        assert_eq!(number("redis_version:255.255.255"), Some((255, 255)));
        assert_eq!(number("redis_version:unstable"), None);
        assert_eq!(number("valkey_version:8.0.1"), None);
        assert!(
            [(5, 9), (6, 1)].iter().all(|old| *old < OLDEST)
                && [(6, 2), (10, 0)].iter().all(|new| *new >= OLDEST)
        );
    }
}
