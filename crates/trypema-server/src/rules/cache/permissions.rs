//! The permissions that the rule cache needs, and those that its user lacks.

use trypema::redis::client::aio::ConnectionLike;
use trypema::redis::client::{RedisError, Value, pipe};
use trypema::redis::{MissingPermission, RedisKey, is_not_permitted};

use super::{Cache, CacheError, with_timeout};

/// The commands of the rule cache, as in ACL rules: to read it, to write it in one transaction, to announce
/// changes and to listen for them.
pub(crate) const CACHE_COMMANDS: [&str; 9] =
    ["hmget", "hset", "pexpire", "del", "multi", "exec", "publish", "subscribe", "ping"];

impl Cache {
    /// Returns the permissions that the user of the cache lacks. Runs each command once, on a name that nothing
    /// else uses, and without writing anything. Announces `revision`, which must be the one in force.
    ///
    /// # Errors
    ///
    /// Redis does not answer.
    pub(crate) async fn missing_permissions(
        &self,
        revision: u64,
    ) -> Result<Vec<MissingPermission>, CacheError> {
        match self.probe(revision).await {
            // Connecting needs a permission that is missing; Redis names it.
            Err(error) if error.is_not_permitted() => {
                Ok(vec![MissingPermission::new(format!("a permission ({error})"))])
            }
            probed => probed,
        }
    }

    async fn probe(&self, revision: u64) -> Result<Vec<MissingPermission>, CacheError> {
        // On a Cluster, the hash tag puts the name beside the cache. Names of counters have other suffixes.
        let key = format!("{}:{{{}}}:permissions", self.prefix, self.name);
        with_timeout(async {
            let mut commands = pipe();
            let sent = CACHE_COMMANDS.into_iter().filter(|command| *command != "subscribe");
            for command in sent.clone() {
                let words = commands.cmd(&command.to_uppercase());
                match command {
                    "hmget" => words.arg(&key).arg("field"),
                    // A field without a value: the command is permitted, and fails.
                    "hset" => words.arg(&key).arg("field").arg("value").arg("field"),
                    "pexpire" => words.arg(&key).arg(1),
                    "del" => words.arg(&key),
                    "publish" => words.arg(&self.name).arg(revision),
                    _ => words,
                };
            }
            let replies = self.connect().await?.req_packed_commands(&commands, 0, commands.len()).await?;
            let denied = |(command, reply): (_, Value)| self.denied(command, &reply.extract_error().err()?);
            let mut missing: Vec<MissingPermission> = sent.zip(replies).filter_map(denied).collect();
            match self.subscribe().await {
                Ok(_) => {}
                Err(CacheError::Redis(error)) => missing.extend(self.denied("subscribe", &error)),
                Err(error) => return Err(error),
            }
            missing.dedup();
            Ok(missing)
        })
        .await
    }

    /// Returns the missing permission, if this error of a command says so.
    fn denied(&self, command: &str, error: &RedisError) -> Option<MissingPermission> {
        if !is_not_permitted(error) {
            return None;
        }
        let prefix = RedisKey::encode(&self.prefix).acl_pattern();
        // Redis says `access` of keys and channels, and `run` of commands. The user's name is in the text, too.
        let is_for_command = !error.to_string().contains("permissions to access");
        Some(MissingPermission::new(match command {
            _ if is_for_command => format!("+{command}"),
            "publish" | "subscribe" => format!("&{prefix}:rules"),
            _ => format!("~{prefix}:*"),
        }))
    }
}
