//! Sends a script call to the right server, once.
//!
//! A target is one server, the master that `sentinel` finds, or the servers of a `cluster`, which `topology` and `slots`
//! map. Each server is a `node`: for each async runtime a connection that `dial` makes when a call needs it, and a circuit
//! breaker. One caller dials for all of its runtime (`single_flight`). Requests to sentinels and fetches of the topology are short tasks of their own,
//! at most one of each.
//!
//! Only the connections come from redis-rs, because a call must be sent once, and its failure must tell whether it was
//! sent. The Cluster client of redis-rs 1.8.1 repeats a call whose connection broke, and with `retries(0)` returns `MOVED`
//! and `ASK` as errors; it has no circuit breaker per node, and its I/O errors do not tell "not sent" from "sent, no
//! reply". Its `SentinelClient` asks for the master when a connection is made, and never subscribes to `+switch-master`.

mod address;
mod circuit_breaker;
mod cluster;
mod dial;
mod node;
mod probe;
mod reply;
mod script;
mod sentinel;
mod server_info;
mod single_flight;
mod slots;
mod topology;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::ConnectionManager;
use ::redis::{ConnectionInfo, Value};

use self::address::Address;
use self::cluster::Cluster;
use self::dial::{SlotOwnership, Target};
use self::node::{NodeChannel, RedisNode, ScriptRequest};
use self::reply::CommandOutcome;
use self::sentinel::Sentinels;
use self::server_info::UsedAs;
use super::runtime::Runtime;
use super::{RedisFailure, RedisFailureKind};
use crate::TrypemaError;
use crate::clock::{Clock, ClockSource, SystemClock};
use crate::waiting::{Sleep, with_timeout};

pub(crate) use self::probe::Probe;
pub(crate) use self::script::{Script, ScriptCall};
pub(crate) use self::slots::slot_of;

/// The state of the servers that a limiter is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RedisStats {
    /// The number of servers whose circuit breaker is open, because calls to them got no reply.
    pub open_breakers: usize,
    /// The number of times that a circuit breaker has opened.
    pub breaker_openings: u64,
}

/// A connection to Redis: one server, the master of a Sentinel service, or a Cluster.
///
/// Clones are cheap and share the connections, one for each async runtime that calls. A lost connection is dialled again
/// when a call needs it, at most ten times a second. If a server does not answer, its circuit breaker opens for a moment, and calls
/// fail at once. No call is sent twice, unless the server's reply proves that it did not run. A task sends
/// the calls, on the runtime of one of their callers. It runs only while there are calls.
///
/// Calls run on Tokio or smol, depending on the crate's features; with both, on Tokio inside a Tokio
/// runtime. No call depends on a runtime other than its own: that may have shut down, or may not be polled at the
/// moment.
///
/// ```no_run
/// use trypema::redis::RedisConnection;
///
/// # async fn connect() -> Result<(), trypema::TrypemaError> {
/// let one = RedisConnection::connect("redis://127.0.0.1:6379").await?;
/// let service = RedisConnection::connect("redis+sentinel://10.0.0.1,10.0.0.2,10.0.0.3/main").await?;
/// let cluster = RedisConnection::connect("rediss+cluster://user:password@10.0.0.1,10.0.0.2").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisConnection {
    route: Route,
    /// The runtime for callers that run outside any runtime.
    runtime: Runtime,
}

#[derive(Clone)]
enum Route {
    /// One server, the master that the sentinels name, or the server of a connection manager.
    Node(Arc<RedisNode>),
    Cluster(Arc<Cluster>),
}

impl RedisConnection {
    /// Connects to `url`:
    ///
    /// - `redis://[user:password@]host[:port][/database]`, `rediss://…` with TLS, or `unix:///path`;
    /// - `redis+sentinel://[user:password@]host[:port],…/service[/database]`, with `?sentinel_password=…`
    ///   (and `sentinel_username`) if the sentinels require them;
    /// - `redis+cluster://[user:password@]host[:port],…`: some of the nodes; the others are discovered.
    ///
    /// `rediss+…` uses TLS. Connections use RESP3; `?protocol=resp2` is for proxies without it.
    ///
    /// # Errors
    ///
    /// [`TrypemaError::InvalidRedisAddress`] if the address is malformed, and [`TrypemaError::RedisError`]
    /// if no server answers there, the login is refused, or the server is older than Redis 6.2. The failure is
    /// [`RedisFailureKind::Refused`] if the address can never work as it is: the server is a node of a Cluster,
    /// a sentinel or a single server where the address names another kind, it lacks the database or RESP3, or has
    /// a certificate that is not trusted or not for it.
    pub async fn connect(url: &str) -> Result<Self, TrypemaError> {
        let connection = Self::lazy(url)?;
        let (server, used_as) = match &connection.route {
            Route::Node(node) => (node.connection().await?, UsedAs::SingleServer),
            Route::Cluster(cluster) => (cluster.connection().await?, UsedAs::ClusterNode),
        };
        server_info::check(&server, used_as).await?;
        Ok(connection)
    }

    /// Same as [`connect`](Self::connect), without connecting: the first call does that.
    ///
    /// # Errors
    ///
    /// [`TrypemaError::InvalidRedisAddress`] if the address is malformed.
    pub fn lazy(url: &str) -> Result<Self, TrypemaError> {
        Ok(Self::from_route(match Address::parse(url)? {
            Address::Server(info) => Route::Node(RedisNode::new(Target::Server(Box::new(info)))),
            Address::Sentinel(address) => {
                Route::Node(RedisNode::new(Target::Sentinel(Sentinels::new(address))))
            }
            Address::Cluster(seeds) => Route::Cluster(Cluster::new(seeds)),
        }))
    }

    /// Returns the address of the server that has `key` now: the configured server, the master that the
    /// sentinels name, or the owner of the key's slot in a Cluster. The result has the login and settings
    /// of this connection.
    ///
    /// This is for applications that store data of their own beside the counters, on their own connection.
    /// Except for a single server, every call queries a sentinel or a node, so do not call this for every
    /// request. The owner may change at any time: call this again when a command is redirected or fails.
    ///
    /// ```no_run
    /// use trypema::redis::RedisConnection;
    /// use trypema::redis::client::Client;
    ///
    /// # async fn keep(connection: &RedisConnection) -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Client::open(connection.server_of("my:cache").await?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`TrypemaError::RedisError`] if no server answers, or no node serves the slot. Always for a
    /// connection that was made from a `ConnectionManager`, which does not reveal its address.
    pub async fn server_of(&self, key: &str) -> Result<ConnectionInfo, TrypemaError> {
        Ok(match &self.route {
            Route::Node(node) => match node.target() {
                Target::Server(info) => ConnectionInfo::clone(info),
                Target::Sentinel(sentinels) => sentinels.server().await?,
                Target::Manager(_) => {
                    return Err(refused("a `ConnectionManager` does not reveal its address").into());
                }
            },
            Route::Cluster(cluster) => cluster.server_of(slot_of(key.as_bytes())).await?,
        })
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.route, Route::Cluster(_))
    }

    /// Returns the runtime that driver tasks are spawned on if their caller has none.
    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns the failure of a request for `slot` that must not be queued, because the circuit breaker is
    /// open.
    pub(super) fn refusal(&self, slot: u16) -> Option<RedisFailure> {
        match &self.route {
            Route::Node(node) => node.refusal(),
            Route::Cluster(cluster) => cluster.refusal(slot),
        }
    }

    /// Reports that `callers` callers gave up while the server of `slot` was being dialled.
    pub(super) fn record_slow_dial(&self, slot: u16, callers: u32) {
        let node = match &self.route {
            Route::Node(node) => Some(Arc::clone(node)),
            Route::Cluster(cluster) => cluster.owner(slot),
        };
        node.into_iter().for_each(|node| node.breaker().record_slow_dial(callers));
    }

    /// Returns a channel to the server of `slot`, or a future that connects first.
    pub(super) fn ready(&self, slot: u16) -> Readiness {
        let (node, cluster) = match &self.route {
            Route::Node(node) => (Some(Arc::clone(node)), None),
            Route::Cluster(cluster) => (cluster.owner(slot), Some(Arc::clone(cluster))),
        };
        if let Some(Ok(channel)) = node.as_ref().and_then(RedisNode::channel_now) {
            return Readiness::Ready(Ok(Channel { channel, cluster, slot }));
        }
        Readiness::Pending(Box::pin(async move {
            let channel = match (&cluster, node) {
                (Some(cluster), _) => cluster.channel(slot).await?,
                (None, Some(node)) => node.channel().await?,
                (None, None) => return Err(refused("no server")),
            };
            Ok(Channel { channel, cluster, slot })
        }))
    }

    pub(crate) fn stats(&self) -> RedisStats {
        match &self.route {
            Route::Node(node) => node.breaker().stats(),
            Route::Cluster(cluster) => cluster.stats(),
        }
    }

    fn from_route(route: Route) -> Self {
        Self { route, runtime: Runtime::current() }
    }
}

/// Uses the manager's own connection, reconnection and timeouts.
impl From<ConnectionManager> for RedisConnection {
    fn from(manager: ConnectionManager) -> Self {
        Self::from_route(Route::Node(RedisNode::new(Target::Manager(Box::new(manager)))))
    }
}

/// Shows the kind of connection, never the address, which may contain a password.
impl fmt::Debug for RedisConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.route {
            Route::Cluster(_) => "cluster",
            Route::Node(node) => match node.target() {
                Target::Server(_) => "server",
                Target::Sentinel(_) => "sentinel",
                Target::Manager(_) => "manager",
            },
        };
        formatter.debug_struct("RedisConnection").field("kind", &kind).finish()
    }
}

/// The reason why a server that is a node of a Cluster cannot be used as a single one.
const IS_CLUSTER_NODE: &str = "the server is a node of a cluster; connect with `redis+cluster://`";

/// A channel, or the future that creates one.
pub(super) enum Readiness {
    Ready(Result<Channel, RedisFailure>),
    /// The server has to be found or dialled first.
    Pending(Pin<Box<dyn Future<Output = Result<Channel, RedisFailure>> + Send>>),
}

/// Permission to send one script call, on a connection.
pub(super) struct Channel {
    channel: NodeChannel,
    cluster: Option<Arc<Cluster>>,
    slot: u16,
}

impl Channel {
    /// Runs the script once, for callers whose timeout is about `call_timeout`. Has no timeout itself: the
    /// driver drops this future when no caller waits any more.
    pub(super) async fn send(self, call: ScriptCall, call_timeout: Duration) -> Result<Value, RedisFailure> {
        let request = ScriptRequest { call: &call, call_timeout, ownership: SlotOwnership::Owner };
        let outcome = match &self.cluster {
            Some(cluster) => cluster.run(self.channel, request, self.slot).await,
            None => self.channel.run(request).await,
        };
        match outcome {
            CommandOutcome::Value(value) => Ok(value),
            CommandOutcome::NoScript => Err(refused("the server replied NOSCRIPT to EVAL")),
            CommandOutcome::Moved(_) | CommandOutcome::Ask(_) => Err(refused(IS_CLUSTER_NODE)),
            // Each batcher of a Cluster has one slot, so this is a node that is used as a single server.
            CommandOutcome::Refused(failure) if failure.is_cross_slot() => Err(refused(IS_CLUSTER_NODE)),
            CommandOutcome::ReadOnly(failure)
            | CommandOutcome::NotReady(failure)
            | CommandOutcome::Refused(failure)
            | CommandOutcome::NotSent(failure)
            | CommandOutcome::Lost(failure) => Err(failure),
        }
    }
}

/// Returns the output of `future`, or `None` if it takes longer than `timeout`.
async fn within<F: Future>(timeout: Duration, future: F) -> Option<F::Output> {
    with_timeout(future, Sleep::until(&ClockSource::System, SystemClock.now() + timeout)).await
}

fn refused(message: &'static str) -> RedisFailure {
    RedisFailure::new(RedisFailureKind::Refused, message)
}
