//! `trypema redis`: prepares a Redis server for Trypema.

use std::io::read_to_string;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use sha2::{Digest, Sha256};
use trypema::redis::{CommandTarget, CommandUse, RedisCommand, RedisKey};

use super::print;
use crate::rules::CACHE_COMMANDS;
use crate::secret::Secret;
use crate::settings::Provider;

/// Work with Redis
#[derive(Debug, Subcommand)]
pub(super) enum Redis {
    Acl(Acl),
}

/// Print the command that gives a Redis user exactly the permissions that a configuration needs
///
/// Example:
///   trypema redis acl --provider hybrid --user limiter --password-file password | redis-cli
///
/// The printed command has the digest of the password, never the password itself. It replaces everything
/// that the user had before.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Acl {
    /// Where the server counts (its setting `provider`)
    #[arg(long, value_name = "PROVIDER", default_value = "redis")]
    provider: Provider,
    /// Permit the rule cache: for servers with a `database_url` and a `redis_url`
    #[arg(long)]
    cache: bool,
    /// Name of the Redis user
    #[arg(long, value_name = "NAME", value_parser = user_name)]
    user: String,
    /// Password of the Redis user; others may see it in the list of processes
    #[arg(
        long,
        env = "TRYPEMA_REDIS_USER_PASSWORD",
        hide_env_values = true,
        value_name = "PASSWORD",
        required_unless_present_any = ["password_file", "password_hash"],
        conflicts_with_all = ["password_file", "password_hash"]
    )]
    password: Option<Secret>,
    /// File with the password; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "password_hash")]
    password_file: Option<PathBuf>,
    /// SHA-256 of the password, in hexadecimal
    #[arg(long, value_name = "SHA256", value_parser = password_hash)]
    password_hash: Option<String>,
    /// Prefix of all names in Redis (the server's setting `redis_prefix`)
    #[arg(long, value_name = "TEXT", default_value = "trypema")]
    prefix: String,
    /// The kind of address in the server's setting `redis_url`
    #[arg(long, value_name = "KIND", default_value = "server")]
    topology: Topology,
    /// Print the user of the sentinels themselves, for `sentinel_username` in the address
    #[arg(long, conflicts_with_all = ["provider", "cache", "prefix", "topology", "database"])]
    on_sentinels: bool,
    /// Number of the database in the address
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    database: u32,
}

/// The kind of a Redis address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Topology {
    /// `redis://`, `rediss://` or `unix://`
    Server,
    /// `redis+sentinel://`
    Sentinel,
    /// `redis+cluster://`
    Cluster,
}

/// Parses a name that can be written in a command without quotes.
fn user_name(name: &str) -> Result<String, String> {
    let is_plain = |character: char| {
        !character.is_whitespace() && !character.is_control() && !"'\"\\".contains(character)
    };
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err("need a name without spaces, quotes and backslashes".to_owned());
    }
    if name == "default" {
        return Err("`default` is the user of all clients that do not log in, yours included; choose \
                    another name"
            .to_owned());
    }
    Ok(name.to_owned())
}

/// Parses the SHA-256 of a password, as Redis writes it.
fn password_hash(text: &str) -> Result<String, String> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("need 64 hexadecimal digits, as `sha256sum` prints them".to_owned());
    }
    Ok(text.to_ascii_lowercase())
}

impl Redis {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let Self::Acl(acl) = self;
        print(&format!("{}\n", acl.command()?));
        Ok(ExitCode::SUCCESS)
    }
}

impl Acl {
    /// Returns the `ACL SETUSER` command.
    fn command(&self) -> Result<String, String> {
        let hash = self.hash()?;
        // `reset` permits all channels if `acl-pubsub-default` says so, as it does by default in Redis 6.2.
        let mut words: Vec<String> = ["ACL", "SETUSER", &self.user, "reset", "on"].map(str::to_owned).into();
        words.push(format!("#{hash}"));
        if self.on_sentinels {
            words.extend(["resetchannels", "&+switch-master"].map(str::to_owned));
        } else {
            let prefix = self.pattern()?;
            words.extend([format!("~{prefix}:*"), "resetchannels".to_owned()]);
            words.extend(self.cache.then(|| format!("&{prefix}:rules")));
        }
        words.extend(self.rules()?);
        Ok(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
    }

    /// Returns the SHA-256 of the password.
    fn hash(&self) -> Result<String, String> {
        let password = match (&self.password_hash, &self.password, &self.password_file) {
            (Some(hash), ..) => return Ok(hash.clone()),
            (None, Some(password), _) => password.clone(),
            (None, None, Some(file)) => read_password(file)?,
            (None, None, None) => return Err("no password was given".to_owned()),
        };
        if password.reveal().is_empty() {
            return Err("the password is empty, and everybody could log in".to_owned());
        }
        Ok(Sha256::digest(password.reveal()).iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn pattern(&self) -> Result<String, String> {
        if self.prefix.is_empty() {
            return Err("--prefix: must not be empty; omit it for the default `trypema`".to_owned());
        }
        Ok(RedisKey::encode(&self.prefix).acl_pattern())
    }

    /// Returns the rules that permit commands, each once.
    fn rules(&self) -> Result<Vec<String>, String> {
        let has_counters = self.provider != Provider::Memory;
        if !has_counters && !self.cache && !self.on_sentinels {
            return Err("counters in memory need no Redis user; for the rule cache, add --cache".to_owned());
        }
        let is_needed = |command: &&RedisCommand| {
            self.is_sent_to(command.sent_to)
                && match command.used_for {
                    CommandUse::Counters => has_counters,
                    CommandUse::Leases => self.provider == Provider::Hybrid,
                    _ => true,
                }
        };
        let mut rules: Vec<String> =
            RedisCommand::ALL.iter().filter(is_needed).map(RedisCommand::acl_rule).collect();
        for rule in CACHE_COMMANDS.iter().filter(|_| self.cache).map(|name| format!("+{name}")) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        Ok(rules)
    }

    fn is_sent_to(&self, target: CommandTarget) -> bool {
        if self.on_sentinels {
            return target == CommandTarget::Sentinel;
        }
        match target {
            CommandTarget::Any => true,
            CommandTarget::OtherDatabase => self.database > 0,
            CommandTarget::ClusterNode => self.topology == Topology::Cluster,
            CommandTarget::Monitored => self.topology == Topology::Sentinel,
            _ => false,
        }
    }
}

fn read_password(file: &Path) -> Result<Secret, String> {
    let failed = |error: std::io::Error| format!("--password-file: {}: {error}", file.display());
    if file != Path::new("-") {
        return Secret::read(file).map_err(failed);
    }
    let text = read_to_string(std::io::stdin()).map_err(failed)?;
    Ok(Secret::from(text.trim_end_matches(['\r', '\n'])))
}

/// Returns the word as shells and `redis-cli` read it. No word contains a quote.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-_.:@/".contains(&byte);
    if word.bytes().all(is_plain) { word.to_owned() } else { format!("'{word}'") }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        acl: Acl,
    }

    /// Returns the printed command, or what is wrong.
    fn printed(arguments: &str) -> Result<String, String> {
        let words = ["acl"].into_iter().chain(arguments.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.acl.command()
    }

    #[test]
    fn the_command_has_what_the_configuration_needs() {
        let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let start = format!("ACL SETUSER ann reset on '#{digest}'");
        let of = |arguments: &str| printed(&format!("--user ann --password secret {arguments}")).unwrap();
        let redis = of("--provider redis");
        assert!(redis.starts_with(&format!("{start} '~trypema:*' resetchannels +evalsha +eval ")), "{redis}");
        assert!(!redis.contains("zadd") && !redis.contains("hset") && !redis.contains('&'), "{redis}");
        let hybrid = of("--provider hybrid --cache --prefix my_app:a*b");
        assert!(hybrid.contains(r"'~my_app:a\*b:*' resetchannels '&my_app:a\*b:rules' "), "{hybrid}");
        for rule in ["+zadd", "+hset", "+publish"] {
            assert_eq!(hybrid.matches(rule).count(), 1, "{rule} in {hybrid}");
        }
        assert_eq!(hybrid.split(' ').filter(|word| *word == "+del").count(), 1, "{hybrid}");
        let cache = of("--provider memory --cache --topology cluster --database 3");
        assert!(!cache.contains("eval") && !cache.contains("asking"), "{cache}");
        assert!(cache.contains("+select '+cluster|slots' +hmget"), "{cache}");
        assert!(of("--topology sentinel").ends_with("+info +role"));
        let sentinels = "'&+switch-master' '+sentinel|get-master-addr-by-name' +subscribe";
        assert_eq!(of("--on-sentinels"), format!("{start} resetchannels {sentinels}"));
        let hash = digest.to_uppercase();
        assert_eq!(printed(&format!("--user ann --password-hash {hash}")).unwrap(), of(""));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (arguments, reason) in [
            ("--password secret", "--user"),
            ("--user ann", "--password"),
            ("--user ann --password secret --password-file secret", "cannot be used with"),
            ("--user ann --password-hash secret", "64 hexadecimal digits"),
            ("--user default --password secret", "clients that do not log in"),
            ("--user it's --password secret", "without spaces, quotes"),
            ("--user ann --password secret --provider memory", "counters in memory need no Redis user"),
            ("--user ann --password secret --prefix=", "--prefix"),
            ("--user ann --password=", "empty"),
            ("--user ann --password-file /nowhere/at/all", "/nowhere/at/all"),
        ] {
            let error = printed(arguments).unwrap_err();
            assert!(error.contains(reason), "{arguments}: {error}");
        }
        assert!(user_name("a b").is_err() && user_name("").is_err());
    }
}
