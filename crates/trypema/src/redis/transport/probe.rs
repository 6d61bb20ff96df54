//! Finds the permissions that the user of a connection lacks, by running each command once on every server.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Pipeline, RedisResult, Value};

use super::cluster::Cluster;
use super::dial::{SharedConnection, Target};
use super::node::RedisNode;
use super::reply::CommandOutcome;
use super::script::{Script, ScriptCall};
use super::slots::{SLOTS, slot_of};
use super::{RedisConnection, Route, within};
use crate::redis::failure::says_not_permitted;
use crate::redis::key::{RedisKey, state_name};
use crate::redis::permissions::{CommandTarget, CommandUse, MissingPermission, RedisCommand, TIME};
use crate::redis::{RedisFailure, RedisFailureKind};

/// The time that a server has to answer one command of the probe. Only the start of a process waits for it, so
/// it is long enough for a busy machine.
const BUDGET: Duration = Duration::from_secs(5);

/// The number of keys that are tried to find one for each node of a Cluster. A node with a thousandth of the
/// slots has none of them once in ten million times; it is then not probed.
const MAX_KEYS_TRIED: usize = SLOTS;

/// The hash tag of the probe's keys, and their suffix. No strategy has this suffix, so no counter has such a
/// name.
const KEY: &str = "trypema permissions";
const SUFFIX: &str = "permissions";

/// The permissions to look for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe<'a> {
    pub(crate) prefix: &'a RedisKey,
    pub(crate) has_leases: bool,
    /// Whether scripts use the time of the server.
    pub(crate) uses_server_time: bool,
}

impl Probe<'_> {
    fn needs(&self, command: &RedisCommand) -> bool {
        let is_used = self.has_leases || command.used_for != CommandUse::Leases;
        is_used && (self.uses_server_time || command.name != TIME)
    }

    /// Returns the name of a key that nothing else uses. The hash tag depends on `number` alone.
    fn key(&self, number: usize, id: u64) -> Vec<u8> {
        let tag = RedisKey::encode(format!("{KEY} {number}"));
        state_name(self.prefix, &tag, &format!("{SUFFIX}:{id:016x}"))
    }
}

/// A server to probe.
struct ProbedServer {
    connection: SharedConnection,
    /// The address, if it is fixed.
    address: Option<String>,
    target: CommandTarget,
    /// A key that this server stores.
    key: Vec<u8>,
}

impl RedisConnection {
    /// Returns the permissions that the user of this connection lacks, on any server. Runs each needed command
    /// once on a key of its own, which is removed at the end, and which expires after ten seconds otherwise.
    pub(crate) async fn missing_permissions(
        &self,
        probe: Probe<'_>,
    ) -> Result<Vec<MissingPermission>, RedisFailure> {
        let mut missing = Vec::new();
        for server in self.servers(probe).await? {
            missing.extend(server.missing_permissions(probe).await?);
        }
        Ok(missing)
    }

    async fn servers(&self, probe: Probe<'_>) -> Result<Vec<ProbedServer>, RedisFailure> {
        let id = crate::random::number();
        match &self.route {
            Route::Node(node) => {
                let target = match node.target() {
                    Target::Sentinel(_) => CommandTarget::Monitored,
                    Target::Server(_) | Target::Manager(_) => CommandTarget::Any,
                };
                Ok(vec![ProbedServer::new(node, target, probe.key(0, id)).await?])
            }
            Route::Cluster(cluster) => {
                let mut servers = Vec::new();
                for (node, number) in keys_of_nodes(cluster, probe).await? {
                    let key = probe.key(number, id);
                    servers.push(ProbedServer::new(&node, CommandTarget::ClusterNode, key).await?);
                }
                Ok(servers)
            }
        }
    }
}

/// Returns the nodes of a Cluster, each with the number of a key that it stores.
async fn keys_of_nodes(
    cluster: &Arc<Cluster>,
    probe: Probe<'_>,
) -> Result<Vec<(Arc<RedisNode>, usize)>, RedisFailure> {
    // Fetches the slot table, if that has not happened yet.
    cluster.connection().await?;
    let mut found: Vec<(Arc<RedisNode>, usize)> = Vec::new();
    let nodes = cluster.nodes();
    for number in 0..MAX_KEYS_TRIED {
        if found.len() == nodes {
            break;
        }
        let Some(owner) = cluster.owner(slot_of(&probe.key(number, 0))) else { continue };
        if !found.iter().any(|(node, _)| Arc::ptr_eq(node, &owner)) {
            found.push((owner, number));
        }
    }
    Ok(found)
}

impl ProbedServer {
    async fn new(node: &Arc<RedisNode>, target: CommandTarget, key: Vec<u8>) -> Result<Self, RedisFailure> {
        let address = node.server().map(|info| info.addr().to_string());
        Ok(Self { connection: node.connection().await?, address, target, key })
    }

    async fn missing_permissions(&self, probe: Probe<'_>) -> Result<Vec<MissingPermission>, RedisFailure> {
        let needed = RedisCommand::ALL.iter().filter(|command| probe.needs(command));
        let needed: Vec<&RedisCommand> =
            needed.filter(|command| [CommandTarget::Any, self.target].contains(&command.sent_to)).collect();
        let mut missing = Vec::new();
        for command in needed.iter().filter(|command| command.probed_as.is_none()) {
            let reply = match command.name {
                "eval" => self.answer(self.connection.send(&self.call(&needed).by_source())).await?,
                "evalsha" => self.answer(self.connection.send(&self.call(&[]).by_digest())).await?,
                "asking" => {
                    // `ASKING` applies to the next command, which must not be that of another caller.
                    let mut pipeline = Pipeline::with_capacity(2);
                    pipeline.cmd("ASKING").add_command(self.call(&[]).by_digest());
                    self.answer(async { first(self.connection.send_all(&pipeline).await) }).await?
                }
                _ => self.answer(self.connection.send(&words(command))).await?,
            };
            match reply {
                CommandOutcome::Refused(failure) if failure.is_not_permitted() => {
                    // Redis says `access` of keys, and `run` of commands. The user's name is in the text, too.
                    let is_for_key = failure.to_string().contains("permissions to access");
                    let keys = || format!("~{}:*", probe.prefix.acl_pattern());
                    let rule = if is_for_key { keys() } else { command.acl_rule() };
                    missing.push(self.missing(rule, command.is_optional));
                }
                CommandOutcome::Value(errors) if command.name == "eval" => {
                    missing.extend(self.missing_in_scripts(&needed, &errors));
                }
                other if command.name == "eval" => return Err(not_run(other)),
                // Any other reply proves that the user may run the command.
                _ => {}
            }
        }
        missing.dedup();
        Ok(missing)
    }

    /// Returns the call of the script that runs these commands.
    fn call(&self, commands: &[&RedisCommand]) -> ScriptCall {
        let lines = commands.iter().filter_map(|command| command.probed_as);
        ScriptCall {
            script: probe_script(),
            keys: vec![self.key.clone()],
            arguments: lines.map(|line| line.as_bytes().to_vec()).collect(),
        }
    }

    /// Returns the commands that failed inside the script, for lack of a permission.
    fn missing_in_scripts(&self, commands: &[&RedisCommand], errors: &Value) -> Vec<MissingPermission> {
        let Value::Array(errors) = errors else { return Vec::new() };
        let run = commands.iter().filter(|command| command.probed_as.is_some());
        let denied = run.zip(errors).filter(|(_, error)| is_denial(error));
        denied.map(|(command, _)| self.missing(command.acl_rule(), command.is_optional)).collect()
    }

    fn missing(&self, rule: String, is_optional: bool) -> MissingPermission {
        MissingPermission { server: self.address.clone(), is_optional, ..MissingPermission::new(rule) }
    }

    /// Awaits a reply, for [`BUDGET`] at most.
    async fn answer(
        &self,
        reply: impl Future<Output = RedisResult<Value>>,
    ) -> Result<CommandOutcome, RedisFailure> {
        match within(BUDGET, reply).await.map(CommandOutcome::from_result) {
            None => Err(unavailable(format!("no reply to the probe of permissions within {BUDGET:?}"))),
            Some(CommandOutcome::Lost(failure) | CommandOutcome::NotSent(failure)) => Err(failure),
            Some(outcome) => Ok(outcome),
        }
    }
}

/// Returns the failure of a script that did not run for another reason than a permission.
fn not_run(outcome: CommandOutcome) -> RedisFailure {
    match outcome {
        CommandOutcome::Refused(failure)
        | CommandOutcome::ReadOnly(failure)
        | CommandOutcome::NotReady(failure) => failure,
        _ => unavailable("the slots of the cluster are moving"),
    }
}

fn is_denial(error: &Value) -> bool {
    match error {
        Value::BulkString(text) => says_not_permitted(&String::from_utf8_lossy(text)),
        Value::SimpleString(text) => says_not_permitted(text),
        _ => false,
    }
}

/// Returns the command itself, with the argument that `INFO` has elsewhere, too.
fn words(command: &RedisCommand) -> Cmd {
    let mut words = command.name.split('|');
    let mut cmd = ::redis::cmd(&words.next().unwrap_or_default().to_uppercase());
    words.for_each(|word| {
        cmd.arg(word.to_uppercase());
    });
    if command.name == "info" {
        cmd.arg("server");
    }
    cmd
}

fn first(replies: RedisResult<Vec<Value>>) -> RedisResult<Value> {
    replies.map(|replies| replies.into_iter().next().unwrap_or(Value::Nil))
}

fn probe_script() -> Arc<Script> {
    Arc::new(Script::new(include_str!("../script/probe.lua").to_owned()))
}

fn unavailable(message: impl Into<Arc<str>>) -> RedisFailure {
    RedisFailure::new(RedisFailureKind::Unavailable, message)
}
