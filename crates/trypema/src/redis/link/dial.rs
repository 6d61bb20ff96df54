//! How connections are made and used: tuned for many small calls, without any retry of the client's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::aio::{ConnectionManager, MultiplexedConnection, SendError};
use ::redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisResult,
    Value,
};

use super::budget::within;
use super::managed::{Request, Standing};
use super::reply::Answer;
use super::sentinel::Sentinels;
use crate::redis::{RedisFailure, RedisFailureKind};

/// How long a dial (with name lookup, TLS and login) may be driven before it is begun anew. Below a second,
/// so that a lost first packet does not cost more than that.
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
pub(super) enum Dialler {
    Server(Box<ConnectionInfo>),
    Sentinel(Arc<Sentinels>),
}

impl Dialler {
    pub(super) async fn dial(&self) -> Result<Line, RedisFailure> {
        match self {
            Self::Server(info) => dial(info).await,
            Self::Sentinel(sentinels) => sentinels.dial_master().await,
        }
    }
}

/// A connection that calls share.
#[derive(Clone)]
pub(super) struct Line {
    connection: MultiplexedConnection,
    is_retired: Arc<AtomicBool>,
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
        self.connection.clone().send_packed_command(command).await
    }

    /// Has the server speak of what happens on `channel`.
    pub(super) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        self.connection.clone().subscribe(channel).await
    }

    /// Makes the call once: a second send follows only the reply that the script is not known, which proves
    /// that the first did not run.
    pub(super) async fn run(&self, request: Request<'_>) -> Answer {
        if !request.call.departure.set_off() {
            return called_off();
        }
        match self.send_as(&request.call.by_digest(), request.standing).await {
            Answer::NoScript => self.send_as(&request.call.by_source(), request.standing).await,
            answer => answer,
        }
    }

    async fn send_as(&self, command: &Cmd, standing: Standing) -> Answer {
        if standing == Standing::Owner {
            return Answer::of(self.send(command).await);
        }
        // `ASKING` holds for the next command of the connection; in one pipeline no other comes between.
        let mut pipeline = ::redis::Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command.clone());
        let replies = self.connection.clone().send_packed_commands(&pipeline, 0, 2).await;
        Answer::of(replies.map(|mut replies| replies.pop().unwrap_or(Value::Nil)))
    }
}

/// Makes the call once on a connection that was given to us, which dials by itself.
pub(super) async fn run_on_manager(manager: &ConnectionManager, request: Request<'_>) -> Answer {
    if !request.call.departure.set_off() {
        return called_off();
    }
    let mut manager = manager.clone();
    match Answer::of(manager.send_packed_command(&request.call.by_digest()).await) {
        Answer::NoScript => Answer::of(manager.send_packed_command(&request.call.by_source()).await),
        answer => answer,
    }
}

fn called_off() -> Answer {
    Answer::Refused(RedisFailure::new(RedisFailureKind::Unavailable, "called off before it was sent"))
}

/// Told of what a server says unasked.
pub(super) type Listener = Box<dyn Fn(&PushInfo) + Send + Sync>;

/// Dials `info` with our settings.
pub(super) async fn dial(info: &ConnectionInfo) -> Result<Line, RedisFailure> {
    dial_and_listen(info, Box::new(|_| {})).await
}

/// The same, with a listener (which hears nothing where the address asks for RESP2).
pub(super) async fn dial_and_listen(info: &ConnectionInfo, listener: Listener) -> Result<Line, RedisFailure> {
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
        let ended = Arc::clone(&is_retired);
        config = config.set_push_sender(move |push: PushInfo| {
            // Heard when the connection ends, not when the next call fails: that call can dial first, and is not
            // sent into the void.
            if push.kind == PushKind::Disconnection {
                ended.store(true, Ordering::Release);
            }
            listener(&push);
            Ok::<(), SendError>(())
        });
    }
    let client = Client::open(info.clone())?;
    let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    Ok(Line { connection, is_retired })
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
