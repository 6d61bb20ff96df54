//! How connections are made and used: tuned for many small calls, without any retry of the client's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::aio::{ConnectionManager, MultiplexedConnection, SendError};
use ::redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, Pipeline, ProtocolVersion, PushInfo, PushKind,
    RedisResult, Value,
};

use super::reply::Answer;
use super::script::ScriptCall;
use super::sentinel::Sentinels;
use super::within;
use crate::redis::runtime::Runtime;
use crate::redis::{RedisFailure, RedisFailureKind};

/// How long a dial (with name lookup, TLS and login) may take. Below a second, so that a lost first packet does not cost more than
/// that.
const DIAL_BUDGET: Duration = Duration::from_millis(800);

/// Commands that wait to be written, beyond which callers wait themselves; enough for the calls of a busy
/// process within one deadline, and a bound on memory when the server stalls.
const UNWRITTEN_COMMANDS: usize = 1_024;

/// An idle connection is probed after this long, then this often, so many times: a server that vanished is
/// noticed before the next call in most cases.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(2);
const KEEPALIVE_PROBES: u32 = 3;

/// Where a connection leads.
pub(super) enum Target {
    Server(Box<ConnectionInfo>),
    Sentinel(Arc<Sentinels>),
    /// Dials by itself, with its own timeouts.
    Manager(Box<ConnectionManager>),
}

impl Target {
    pub(super) async fn dial(&self) -> Result<Line, RedisFailure> {
        match self {
            Self::Server(info) => dial(info).await,
            Self::Sentinel(sentinels) => sentinels.dial_master().await,
            Self::Manager(manager) => Ok(Line::from(ConnectionManager::clone(manager))),
        }
    }

    /// Asks the sentinels now and then whether the master is still the master.
    pub(super) fn recheck_if_due(&self) {
        if let Self::Sentinel(sentinels) = self {
            sentinels.recheck_if_due();
        }
    }
}

/// Whether the server owns the call's keys already, or was named by the node that is handing them over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Owner,
    Importing,
}

/// A connection that calls share.
#[derive(Clone)]
pub(super) struct Line {
    connection: Connection,
    is_retired: Arc<AtomicBool>,
}

#[derive(Clone)]
enum Connection {
    Own(MultiplexedConnection),
    Manager(ConnectionManager),
}

impl Line {
    /// Whether the connection ended, or should not be used for further calls.
    pub(super) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Acquire)
    }

    /// Makes the next call dial; calls in flight are not disturbed.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }

    /// Sends one command, once.
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        match &self.connection {
            Connection::Own(connection) => connection.clone().send_packed_command(command).await,
            Connection::Manager(manager) => manager.clone().send_packed_command(command).await,
        }
    }

    /// Sends two commands as one pipeline, once; the reply to the second.
    async fn send_both(&self, pipeline: &Pipeline) -> RedisResult<Value> {
        let replies = match &self.connection {
            Connection::Own(connection) => connection.clone().send_packed_commands(pipeline, 0, 2).await,
            Connection::Manager(manager) => manager.clone().send_packed_commands(pipeline, 0, 2).await,
        };
        replies.map(|mut replies| replies.pop().unwrap_or(Value::Nil))
    }

    /// Has the server speak of what happens on `channel`.
    pub(super) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        match &self.connection {
            Connection::Own(connection) => connection.clone().subscribe(channel).await,
            Connection::Manager(manager) => manager.clone().subscribe(channel).await,
        }
    }

    /// Makes the call once: a second send follows only the reply that the script is not known, which proves
    /// that the first did not run.
    pub(super) async fn run(&self, call: &ScriptCall, standing: Standing) -> Answer {
        match self.send_as(call.by_digest(), standing).await {
            Answer::NoScript => self.send_as(call.by_source(), standing).await,
            answer => answer,
        }
    }

    async fn send_as(&self, command: Cmd, standing: Standing) -> Answer {
        if standing == Standing::Owner {
            return Answer::of(self.send(&command).await);
        }
        // `ASKING` holds for the next command of the connection; in one pipeline no other comes between.
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command);
        Answer::of(self.send_both(&pipeline).await)
    }
}

impl From<ConnectionManager> for Line {
    fn from(manager: ConnectionManager) -> Self {
        Self { connection: Connection::Manager(manager), is_retired: Arc::default() }
    }
}

/// Told of what a server says unasked.
pub(super) type Listener = Box<dyn Fn(&PushInfo) + Send + Sync>;

/// Dials `info` with our settings.
pub(super) async fn dial(info: &ConnectionInfo) -> Result<Line, RedisFailure> {
    dial_and_listen(info, Box::new(|_| {})).await
}

/// The same, with a listener (which hears nothing where the address asks for RESP2).
pub(super) async fn dial_and_listen(info: &ConnectionInfo, listener: Listener) -> Result<Line, RedisFailure> {
    if !Runtime::is_here() {
        return Err(RedisFailure::new(
            RedisFailureKind::Unavailable,
            "this runs in no async runtime that can dial",
        ));
    }
    match within(DIAL_BUDGET, connect(info, listener)).await {
        Some(Ok(line)) => Ok(line),
        Some(Err(error)) => Err(RedisFailure::from_client(RedisFailureKind::Unavailable, error)),
        None => Err(RedisFailure::new(
            RedisFailureKind::Unavailable,
            format!("no connection to {} in time", info.addr()),
        )),
    }
}

async fn connect(info: &ConnectionInfo, listener: Listener) -> RedisResult<Line> {
    let is_retired = Arc::new(AtomicBool::new(false));
    // Callers have deadlines of their own, and dials a budget: the client's timers stay off.
    let mut config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(UNWRITTEN_COMMANDS);
    if can_listen(info) {
        // Dropped by the client's task when the connection ends, or when the task's runtime is shut down: the next call dials first,
        // and is not sent into the void.
        let ended = RetireOnDrop(Arc::clone(&is_retired));
        config = config.set_push_sender(move |push: PushInfo| {
            let RetireOnDrop(ended) = &ended;
            if push.kind == PushKind::Disconnection {
                ended.store(true, Ordering::Release);
            }
            listener(&push);
            Ok::<(), SendError>(())
        });
    }
    let client = Client::open(info.clone())?;
    let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    Ok(Line { connection: Connection::Own(connection), is_retired })
}

/// Retires a connection when it is dropped.
struct RetireOnDrop(Arc<AtomicBool>);

impl Drop for RetireOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Servers speak unasked in RESP3 only.
pub(super) fn can_listen(info: &ConnectionInfo) -> bool {
    info.redis_settings().protocol() != ProtocolVersion::RESP2
}

pub(super) fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER);
    #[cfg(any(target_os = "linux", target_os = "macos", target_os = "freebsd", target_os = "windows"))]
    let keepalive = keepalive.with_interval(KEEPALIVE_EVERY).with_retries(KEEPALIVE_PROBES);
    TcpSettings::default().set_nodelay(true).set_keepalive(keepalive)
}
