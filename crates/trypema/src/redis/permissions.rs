//! The commands that a Redis user needs: one table, from which `trypema redis acl` writes an ACL rule, and
//! with which a limiter finds out what its user may not run (`transport/probe.rs`).

use std::fmt;

use super::key::RedisKey;

/// A command that this version sends to Redis.
///
/// ```
/// use trypema::redis::{CommandTarget, CommandUse, RedisCommand};
///
/// // The commands of `rl.redis()` on a single server.
/// let rules: Vec<String> = RedisCommand::ALL
///     .iter()
///     .filter(|command| command.used_for != CommandUse::Leases && command.sent_to == CommandTarget::Any)
///     .map(RedisCommand::acl_rule)
///     .collect();
/// assert!(rules.contains(&"+evalsha".to_owned()) && !rules.contains(&"+zadd".to_owned()));
/// ```
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisCommand {
    /// The name as in an ACL rule: `get`, `cluster|slots`.
    pub name: &'static str,
    /// The part of Trypema that needs the command.
    pub used_for: CommandUse,
    /// The servers that receive the command.
    pub sent_to: CommandTarget,
    /// Whether everything else works without the command.
    pub is_optional: bool,
    /// For a command of scripts, its words in the probe, in which `KEY` stands for the key.
    pub(super) probed_as: Option<&'static str>,
}

/// The part of Trypema that needs a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandUse {
    /// Finding and opening connections.
    Connections,
    /// Counters and reservations: `rl.redis()` and `rl.hybrid()`.
    Counters,
    /// Leases: `rl.hybrid()`.
    Leases,
}

/// The servers that receive a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandTarget {
    /// Every server that stores counters.
    Any,
    /// Servers whose address names another database than 0.
    OtherDatabase,
    /// The nodes of a Cluster (`redis+cluster://`).
    ClusterNode,
    /// The servers that sentinels name (`redis+sentinel://`).
    Monitored,
    /// The sentinels themselves.
    Sentinel,
}

use CommandTarget::{Any, ClusterNode, Monitored, OtherDatabase, Sentinel};
use CommandUse::{Connections, Counters, Leases};

impl RedisCommand {
    /// Every command. `AUTH` and `HELLO` are missing, because every user may run them.
    pub const ALL: &'static [Self] = &[
        Self::sent("evalsha", Counters, Any),
        Self::sent("eval", Counters, Any),
        // `SET` is the first of the scripts' commands: it gives the key of the probe a time to live.
        Self::in_scripts("set", Counters, "SET KEY 0 PX 10000"),
        Self::in_scripts("get", Counters, "GET KEY"),
        Self::in_scripts("getrange", Counters, "GETRANGE KEY 0 0"),
        Self::in_scripts("setrange", Counters, "SETRANGE KEY 0 1"),
        Self::in_scripts("incr", Counters, "INCR KEY"),
        Self::in_scripts("pexpire", Counters, "PEXPIRE KEY 10000"),
        Self::in_scripts("pttl", Counters, "PTTL KEY"),
        Self::in_scripts(TIME, Counters, "TIME"),
        // The key is a string, so these fail. That comes after the check of permissions.
        Self::in_scripts("zadd", Leases, "ZADD KEY 0 member"),
        Self::in_scripts("zcard", Leases, "ZCARD KEY"),
        Self::in_scripts("zrem", Leases, "ZREM KEY member"),
        Self::in_scripts("zremrangebyscore", Leases, "ZREMRANGEBYSCORE KEY 0 0"),
        Self::in_scripts("del", Counters, "DEL KEY"),
        Self::sent("info", Counters, Any).optional(),
        Self::sent("asking", Counters, ClusterNode),
        Self::sent("role", Counters, Monitored).optional(),
        Self::sent("select", Connections, OtherDatabase),
        Self::sent("cluster|slots", Connections, ClusterNode),
        Self::sent("sentinel|get-master-addr-by-name", Connections, Sentinel),
        Self::sent("subscribe", Connections, Sentinel).optional(),
    ];

    const fn sent(name: &'static str, used_for: CommandUse, sent_to: CommandTarget) -> Self {
        Self { name, used_for, sent_to, is_optional: false, probed_as: None }
    }

    const fn in_scripts(name: &'static str, used_for: CommandUse, probed_as: &'static str) -> Self {
        Self { probed_as: Some(probed_as), ..Self::sent(name, used_for, Any) }
    }

    const fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    /// Returns the rule that permits the command: `+get`.
    pub fn acl_rule(&self) -> String {
        format!("+{}", self.name)
    }
}

/// The command that scripts do not send if the limiter has a clock of its own.
pub(super) const TIME: &str = "time";

/// A permission that the user of a connection lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingPermission {
    /// The ACL rule that grants it: `+zadd`, `~trypema:*`, `&trypema:rules`.
    pub rule: String,
    /// The address of the server, if it is fixed.
    pub server: Option<String>,
    /// Whether everything else works without it.
    pub is_optional: bool,
}

impl MissingPermission {
    /// Returns a permission that is needed, on a server that is not named.
    ///
    /// ```
    /// use trypema::redis::MissingPermission;
    ///
    /// assert_eq!(MissingPermission::new("+publish").to_string(), "+publish");
    /// ```
    pub fn new(rule: impl Into<String>) -> Self {
        Self { rule: rule.into(), server: None, is_optional: false }
    }
}

/// Shows the rule, and the server if it is known: `+zadd on 127.0.0.1:6379`.
impl fmt::Display for MissingPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Some(server) => write!(f, "{} on {server}", self.rule),
            None => f.write_str(&self.rule),
        }
    }
}

impl RedisKey {
    /// Returns the pattern that matches this text and nothing else in an ACL rule, such as `~PATTERN:*`.
    ///
    /// A pattern cannot contain spaces, and quotes are hard to write in a shell. For these the pattern has a
    /// `?`, which matches any byte.
    ///
    /// ```
    /// use trypema::redis::RedisKey;
    ///
    /// assert_eq!(RedisKey::encode("myapp:limits").acl_pattern(), "myapp:limits");
    /// assert_eq!(RedisKey::encode("my app*").acl_pattern(), r"my?app\*");
    /// ```
    pub fn acl_pattern(&self) -> String {
        let mut pattern = String::with_capacity(self.as_str().len());
        for character in self.as_str().chars() {
            match character {
                ' ' | '\'' | '"' => pattern.push('?'),
                '*' | '?' | '[' | ']' | '\\' => pattern.extend(['\\', character]),
                other => pattern.push(other),
            }
        }
        pattern
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::redis::script;

    /// Returns the names of the commands that a Lua source calls.
    fn called(source: &str) -> BTreeSet<String> {
        let code = source.lines().map(|line| line.split("--").next().unwrap_or_default());
        let code = code.collect::<Vec<_>>().join("\n").replace("pcall(", "");
        let calls = code.split("call(").skip(1);
        let name = |call: &str| {
            let text = call.strip_prefix('\'').unwrap_or_else(|| panic!("a computed name: {call:.40}"));
            text.split('\'').next().unwrap_or_default().to_lowercase()
        };
        calls.map(name).collect()
    }

    fn listed(used_for: CommandUse) -> BTreeSet<String> {
        let commands = RedisCommand::ALL.iter().filter(|command| command.used_for == used_for);
        commands
            .filter(|command| command.probed_as.is_some())
            .map(|command| command.name.to_owned())
            .collect()
    }

    /// A script that calls another command needs a line in the table.
    #[test]
    fn the_table_has_the_commands_that_scripts_call() {
        let sources = script::script_sources();
        let instances = script::instances();
        let without_leases = sources.iter().map(|script| script.source.replace(&instances, ""));
        let of_counters: BTreeSet<String> = without_leases.flat_map(|source| called(&source)).collect();
        let of_leases: BTreeSet<String> = called(&instances).difference(&of_counters).cloned().collect();
        assert_eq!(listed(Counters), of_counters);
        assert_eq!(listed(Leases), of_leases);
        assert!(of_leases.contains("zadd") && of_counters.contains("time"));
    }

    #[test]
    fn a_probed_command_is_the_listed_one() {
        for command in RedisCommand::ALL {
            let first = command.probed_as.and_then(|words| words.split(' ').next());
            assert!(first.is_none_or(|first| first.eq_ignore_ascii_case(command.name)), "{command:?}");
        }
        let mut of_scripts = RedisCommand::ALL.iter().filter(|command| command.probed_as.is_some());
        assert_eq!(of_scripts.next().map(|first| first.name), Some("set"));
        assert_eq!(of_scripts.next_back().map(|last| last.name), Some("del"), "the key is removed");
    }
}
