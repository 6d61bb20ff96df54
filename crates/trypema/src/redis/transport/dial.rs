//! Dials and uses connections: tuned for many small calls, without retries by the client.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::redis::aio::{ConnectionManager, MultiplexedConnection, SendError};
use ::redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, Pipeline, ProtocolVersion, PushInfo,
    PushKind, RedisError, RedisResult, Value,
};

use super::reply::CommandOutcome;
use super::script::ScriptCall;
use super::sentinel::Sentinels;
use super::within;
use crate::redis::runtime::Runtime;
use crate::redis::{RedisFailure, RedisFailureKind};

/// The maximum time of a dial, with name lookup, TLS and login. Shorter than the second after which TCP
/// repeats a lost first packet: it is faster to dial again.
const DIAL_BUDGET: Duration = Duration::from_millis(800);

/// The maximum number of commands that wait to be written. Callers beyond that wait for room. Enough for
/// the calls of a busy process within one deadline, and a bound on memory if the server stalls.
const UNWRITTEN_COMMANDS: usize = 1_024;

/// The client's words for a server that has no database of the number in the address.
const NO_SUCH_DATABASE: &str = "refused to switch database";

/// TCP keepalive: the idle time before the first probe, the interval of further probes, and their number. A
/// server that has vanished is usually noticed before the next call.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(2);
const KEEPALIVE_PROBES: u32 = 3;

/// The server that a connection leads to.
pub(super) enum Target {
    Server(Box<ConnectionInfo>),
    Sentinel(Arc<Sentinels>),
    /// Dials by itself, with its own timeouts.
    Manager(Box<ConnectionManager>),
}

impl Target {
    pub(super) async fn dial(&self) -> Result<SharedConnection, RedisFailure> {
        match self {
            Self::Server(info) => dial(info).await,
            Self::Sentinel(sentinels) => sentinels.dial_master().await,
            Self::Manager(manager) => Ok(SharedConnection::from(ConnectionManager::clone(manager))),
        }
    }

    /// Checks in the background, if that is due, whether the master has changed.
    pub(super) fn recheck_if_due(&self) {
        if let Self::Sentinel(sentinels) = self {
            sentinels.recheck_if_due();
        }
    }
}

/// Whether the server owns the call's keys, or is about to receive them from the node that redirected the
/// call (`ASK`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotOwnership {
    Owner,
    Importing,
}

/// A connection that calls share.
#[derive(Clone)]
pub(super) struct SharedConnection {
    connection: ClientConnection,
    is_retired: Arc<AtomicBool>,
}

#[derive(Clone)]
enum ClientConnection {
    Own(MultiplexedConnection),
    Manager(ConnectionManager),
}

impl SharedConnection {
    /// Whether the connection has ended or must not be used for further calls.
    pub(super) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Acquire)
    }

    /// Excludes the connection from further calls, so that the next call dials. Calls in flight continue.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }

    /// Returns a handle that retires the connection and does not keep it open.
    pub(super) fn retirement(&self) -> Retirement {
        Retirement(Arc::downgrade(&self.is_retired))
    }

    /// Sends a command, once.
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        match &self.connection {
            ClientConnection::Own(connection) => connection.clone().send_packed_command(command).await,
            ClientConnection::Manager(manager) => manager.clone().send_packed_command(command).await,
        }
    }

    /// Sends the commands of a pipeline, once. Returns the replies.
    pub(super) async fn send_all(&self, pipeline: &Pipeline) -> RedisResult<Vec<Value>> {
        let count = pipeline.len();
        match &self.connection {
            ClientConnection::Own(connection) => {
                connection.clone().send_packed_commands(pipeline, 0, count).await
            }
            ClientConnection::Manager(manager) => {
                manager.clone().send_packed_commands(pipeline, 0, count).await
            }
        }
    }

    /// Subscribes to a Pub/Sub channel.
    pub(super) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        match &self.connection {
            ClientConnection::Own(connection) => connection.clone().subscribe(channel).await,
            ClientConnection::Manager(manager) => manager.clone().subscribe(channel).await,
        }
    }

    /// Runs the call once. Sends it a second time only after `NOSCRIPT`, which proves that the first did
    /// not run.
    pub(super) async fn run(&self, call: &ScriptCall, ownership: SlotOwnership) -> CommandOutcome {
        match self.send_as(call.by_digest(), ownership).await {
            CommandOutcome::NoScript => self.send_as(call.by_source(), ownership).await,
            outcome => outcome,
        }
    }

    async fn send_as(&self, command: Cmd, ownership: SlotOwnership) -> CommandOutcome {
        if ownership == SlotOwnership::Owner {
            return CommandOutcome::from_result(self.send(&command).await);
        }
        // `ASKING` applies to the next command of the connection. In one pipeline no other command can come
        // between.
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command);
        let replies = self.send_all(&pipeline).await;
        CommandOutcome::from_result(replies.map(|mut replies| replies.pop().unwrap_or(Value::Nil)))
    }
}

/// Retires a connection, if it is still there.
pub(super) struct Retirement(Weak<AtomicBool>);

impl Retirement {
    pub(super) fn retire(&self) {
        if let Some(is_retired) = self.0.upgrade() {
            is_retired.store(true, Ordering::Release);
        }
    }

    /// Whether the connection is retired already, or gone.
    pub(super) fn is_over(&self) -> bool {
        self.0.upgrade().is_none_or(|is_retired| is_retired.load(Ordering::Acquire))
    }
}

impl From<ConnectionManager> for SharedConnection {
    fn from(manager: ConnectionManager) -> Self {
        Self { connection: ClientConnection::Manager(manager), is_retired: Arc::default() }
    }
}

/// A callback for the push messages of a server.
pub(super) type PushListener = Box<dyn Fn(&PushInfo) + Send + Sync>;

/// Dials `info` with this crate's settings.
pub(super) async fn dial(info: &ConnectionInfo) -> Result<SharedConnection, RedisFailure> {
    dial_and_listen(info, Box::new(|_| {})).await
}

/// Same as [`dial`], with a listener for push messages. RESP2 connections have none.
pub(super) async fn dial_and_listen(
    info: &ConnectionInfo,
    listener: PushListener,
) -> Result<SharedConnection, RedisFailure> {
    if !Runtime::is_available() {
        return Err(RedisFailure::new(
            RedisFailureKind::Unavailable,
            "no Tokio runtime is running; cannot open a connection",
        ));
    }
    match within(DIAL_BUDGET, connect(info, listener)).await {
        Some(Ok(connection)) => Ok(connection),
        Some(Err(error)) => Err(RedisFailure::from_client(failure_kind(&error), error).at(info.addr())),
        None => Err(RedisFailure::new(
            RedisFailureKind::Unavailable,
            format!("{}: connecting timed out after {DIAL_BUDGET:?}", info.addr()),
        )),
    }
}

/// Returns the kind of a failed dial: `Refused` if no dial to this address can succeed before the address or the server's
/// configuration changes. (Wrong credentials are told apart by [`RedisFailure::is_login_refused`].)
fn failure_kind(error: &RedisError) -> RedisFailureKind {
    let is_final = match error.kind() {
        ErrorKind::RESP3NotSupported => true,
        ErrorKind::Server(_) => error.to_string().contains(NO_SUCH_DATABASE),
        ErrorKind::Io => tls_error(error).is_some_and(is_final_tls_error),
        _ => false,
    };
    if is_final { RedisFailureKind::Refused } else { RedisFailureKind::Unavailable }
}

/// Returns the error of TLS that caused an error of the client.
fn tls_error(error: &RedisError) -> Option<&rustls::Error> {
    let shared: &Arc<dyn std::error::Error + Send + Sync> = error.source()?.downcast_ref()?;
    shared.downcast_ref::<std::io::Error>()?.get_ref()?.downcast_ref()
}

/// Whether the server has a certificate that is not for it or that nobody trusts. Expired certificates are renewed.
fn is_final_tls_error(error: &rustls::Error) -> bool {
    use rustls::CertificateError::{NotValidForName, NotValidForNameContext, UnknownIssuer};
    matches!(
        error,
        rustls::Error::InvalidCertificate(UnknownIssuer | NotValidForName | NotValidForNameContext { .. })
    )
}

async fn connect(info: &ConnectionInfo, listener: PushListener) -> RedisResult<SharedConnection> {
    let is_retired = Arc::new(AtomicBool::new(false));
    // Callers have their own deadlines and dials have a budget, so the client's timers stay off.
    let mut config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(UNWRITTEN_COMMANDS);
    if can_listen(info) {
        // The client's task drops this when the connection ends, or when the task's runtime shuts down. The
        // next call then dials, instead of sending on a dead connection.
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
    Ok(SharedConnection { connection: ClientConnection::Own(connection), is_retired })
}

/// Retires a connection when it is dropped.
struct RetireOnDrop(Arc<AtomicBool>);

impl Drop for RetireOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Whether the connection receives push messages: RESP2 has none.
pub(super) fn can_listen(info: &ConnectionInfo) -> bool {
    info.redis_settings().protocol() != ProtocolVersion::RESP2
}

pub(super) fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER);
    #[cfg(any(target_os = "linux", target_os = "macos", target_os = "freebsd", target_os = "windows"))]
    let keepalive = keepalive.with_interval(KEEPALIVE_EVERY).with_retries(KEEPALIVE_PROBES);
    TcpSettings::default().set_nodelay(true).set_keepalive(keepalive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_nobody_trusts_is_final_and_an_expired_one_is_not() {
        let kind = |error: rustls::CertificateError| {
            let error = rustls::Error::InvalidCertificate(error);
            failure_kind(&std::io::Error::new(std::io::ErrorKind::InvalidData, error).into())
        };
        assert_eq!(kind(rustls::CertificateError::UnknownIssuer), RedisFailureKind::Refused);
        assert_eq!(kind(rustls::CertificateError::NotValidForName), RedisFailureKind::Refused);
        assert_eq!(kind(rustls::CertificateError::Expired), RedisFailureKind::Unavailable);
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(failure_kind(&refused.into()), RedisFailureKind::Unavailable);
    }
}
