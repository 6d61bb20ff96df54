//! Brings one script call to the right server, once.

mod address;
mod breaker;
mod budget;
mod cluster;
mod dial;
mod errand;
mod gate;
mod managed;
mod reply;
mod script;
mod sentinel;
mod slots;
mod topology;
mod version;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::ConnectionManager;
use ::redis::{ConnectionInfo, Value};

use self::address::Address;
use self::cluster::ClusterConnection;
use self::dial::{Dialler, Line, run_on_manager};
use self::gate::Gate;
use self::managed::{ManagedConnection, Request, Standing};
use self::reply::Answer;
use self::sentinel::SentinelConnection;
use super::{RedisFailure, RedisFailureKind};
use crate::TrypemaError;

pub(crate) use self::script::{Departure, Script, ScriptCall};
pub(crate) use self::slots::slot_of;

/// What a call may take unless the provider says otherwise.
const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

/// What can be told of the servers that a limiter is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RedisStats {
    /// How many of them are left alone for a moment, because calls went unanswered.
    pub open_breakers: usize,
    /// How often that has begun.
    pub breaker_openings: u64,
}

/// A connection to Redis: one server, the master of a Sentinel service, or a Cluster.
///
/// Clones are cheap and share the connection. Lost connections are dialled again by the calls that need them, at
/// most ten times a second; a server that does not answer is left alone for a moment, and calls fail at once
/// meanwhile. No call is sent twice unless the server's answer proves that it did not run. Nothing runs in the
/// background.
///
/// Calls run on Tokio or smol, as the crate's features say; with both, on Tokio inside a Tokio runtime.
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
    route: Arc<Route>,
    deadline: Duration,
}

enum Route {
    Server(ManagedConnection, Box<ConnectionInfo>),
    Sentinel(SentinelConnection),
    Cluster(ClusterConnection),
    Manager(ConnectionManager, Gate),
}

impl RedisConnection {
    /// Connects to `url`:
    ///
    /// - `redis://[user:password@]host[:port][/database]`, `rediss://…` with TLS, or `unix:///path`;
    /// - `redis+sentinel://[user:password@]host[:port],…/service[/database]`, with `?sentinel_password=…` (and
    ///   `sentinel_username`) where the sentinels ask for one;
    /// - `redis+cluster://[user:password@]host[:port],…`: some nodes, from which the others are learnt.
    ///
    /// `rediss+…` is with TLS. Connections speak RESP3; `?protocol=resp2` is for proxies that cannot.
    ///
    /// # Errors
    ///
    /// [`TrypemaError::InvalidRedisAddress`] if the address cannot be understood, and
    /// [`TrypemaError::RedisError`] if nobody answers there, the login is refused, or the server is older than
    /// Redis 6.2.
    pub async fn connect(url: &str) -> Result<Self, TrypemaError> {
        let connection = Self::lazy(url)?;
        if let Some(line) = connection.route.line().await? {
            version::check(&line).await?;
        }
        Ok(connection)
    }

    /// The same without reaching for the server: the first call connects.
    ///
    /// # Errors
    ///
    /// [`TrypemaError::InvalidRedisAddress`] if the address cannot be understood.
    pub fn lazy(url: &str) -> Result<Self, TrypemaError> {
        Ok(Self::from_route(match Address::parse(url)? {
            Address::Server(info) => {
                let info = Box::new(info);
                Route::Server(ManagedConnection::new(Dialler::Server(info.clone())), info)
            }
            Address::Sentinel(address) => Route::Sentinel(SentinelConnection::new(address)),
            Address::Cluster(seeds) => Route::Cluster(ClusterConnection::new(seeds)),
        }))
    }

    /// Where the server is that has `key` now: the one of the address, the master that the sentinels name, or the owner of the
    /// key's slot in a Cluster. For who keeps something of their own beside the counters, on a connection of their own; with the
    /// login and the settings of this one.
    ///
    /// Asks a sentinel or a node each time, so it is not for every call; one server is not asked. By the time of the answer it may be
    /// another one: ask again when a call is told so, or fails.
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
    /// [`TrypemaError::RedisError`] if nobody answers, or nobody serves the slot; always for a connection that was made of a
    /// `ConnectionManager`, which does not tell its address.
    pub async fn server_of(&self, key: &str) -> Result<ConnectionInfo, TrypemaError> {
        Ok(match &*self.route {
            Route::Server(_, info) => ConnectionInfo::clone(info),
            Route::Sentinel(connection) => connection.server().await?,
            Route::Cluster(connection) => connection.server_of(key.as_bytes()).await?,
            Route::Manager(..) => {
                return Err(refused("a connection manager does not tell its address").into());
            }
        })
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(*self.route, Route::Cluster(_))
    }

    /// About how long callers wait before they give up. Calls are not cut short by it; giving up that late counts as
    /// a failure of the server.
    pub(crate) fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Runs the script once. Waits as long as it takes: the caller drops the future at its deadline.
    pub(crate) async fn run(&self, call: &ScriptCall) -> Result<Value, RedisFailure> {
        let request = Request { call, deadline: self.deadline, standing: Standing::Owner };
        match self.route.run(request).await {
            Answer::Value(value) => Ok(value),
            Answer::NoScript => Err(refused("the server forgets scripts as soon as it is told of them")),
            Answer::Moved(_) | Answer::Ask(_) => {
                Err(refused("this is a node of a cluster: its address is redis+cluster://…"))
            }
            Answer::ReadOnly(failure)
            | Answer::NotReady(failure)
            | Answer::Refused(failure)
            | Answer::NotSent(failure)
            | Answer::Lost(failure) => Err(failure),
        }
    }

    pub(crate) fn stats(&self) -> RedisStats {
        match &*self.route {
            Route::Server(connection, _) => connection.gate().stats(),
            Route::Sentinel(connection) => connection.gate().stats(),
            Route::Cluster(connection) => connection.stats(),
            Route::Manager(_, gate) => gate.stats(),
        }
    }

    fn from_route(route: Route) -> Self {
        Self { route: Arc::new(route), deadline: DEFAULT_DEADLINE }
    }
}

/// The manager dials by itself. Its own timeouts stay as they are.
impl From<ConnectionManager> for RedisConnection {
    fn from(manager: ConnectionManager) -> Self {
        Self::from_route(Route::Manager(manager, Gate::new()))
    }
}

/// Shows what kind it is; never an address, which may hold a password.
impl fmt::Debug for RedisConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match *self.route {
            Route::Server(..) => "server",
            Route::Sentinel(_) => "sentinel",
            Route::Cluster(_) => "cluster",
            Route::Manager(..) => "manager",
        };
        formatter
            .debug_struct("RedisConnection")
            .field("kind", &kind)
            .field("deadline", &self.deadline)
            .finish()
    }
}

impl Route {
    async fn run(&self, request: Request<'_>) -> Answer {
        match self {
            Self::Server(connection, _) => connection.run(request).await,
            Self::Sentinel(connection) => connection.run(request).await,
            Self::Cluster(connection) => connection.run(request).await,
            Self::Manager(manager, gate) => {
                let pass = match gate.enter(request.deadline) {
                    Ok(pass) => pass,
                    Err(failure) => return Answer::NotSent(failure),
                };
                let answer = run_on_manager(manager, request).await;
                match answer {
                    Answer::Lost(_) | Answer::NotSent(_) => pass.unanswered(),
                    _ => pass.answered(),
                }
                answer
            }
        }
    }

    /// A connection to a server behind this, to ask what it is; none where the caller made it.
    async fn line(&self) -> Result<Option<Line>, RedisFailure> {
        match self {
            Self::Server(connection, _) => connection.line().await.map(Some),
            Self::Sentinel(connection) => connection.line().await.map(Some),
            Self::Cluster(connection) => connection.line().await.map(Some),
            Self::Manager(..) => Ok(None),
        }
    }
}

fn refused(message: &'static str) -> RedisFailure {
    RedisFailure::new(RedisFailureKind::Refused, message)
}
