//! One server: its connections, one for each runtime, which are dialled when needed and replaced when they fail, and its
//! circuit breaker.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::ConnectionInfo;
use ::redis::aio::ConnectionManager;

use super::circuit_breaker::{CircuitBreaker, Permit};
use super::dial::{SharedConnection, SlotOwnership, Target};
use super::reply::CommandOutcome;
use super::script::ScriptCall;
use super::single_flight::{RunResult, SingleFlight};
use crate::redis::runtime::PerRuntime;
use crate::redis::{RedisFailure, RedisFailureKind};

/// The minimum interval between the starts of two dials of one runtime to one server. The actual interval is up to twice as
/// long. A fleet must not overload a server that has just come back. A runtime's first dial is not delayed by the dials of
/// others; while the server does not answer, the circuit breaker, which all share, keeps it back.
const DIAL_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct RedisNode {
    target: Target,
    breaker: Arc<CircuitBreaker>,
    connections: PerRuntime<RuntimeConnection>,
}

/// The connection that one runtime dialled and polls.
struct RuntimeConnection {
    dial: SingleFlight,
    state: Mutex<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    connection: Option<DialledConnection>,
    last_failure: Option<RedisFailure>,
}

struct DialledConnection {
    connection: SharedConnection,
    /// The breaker's opening count when the connection was dialled. A connection from before the last
    /// opening may be dead without having reported an error.
    openings: u64,
}

/// Permission to send one script call, on a connection.
pub(super) struct NodeChannel {
    pub(super) node: Arc<RedisNode>,
    connection: SharedConnection,
    permit: Permit,
}

impl RedisNode {
    pub(super) fn new(target: Target) -> Arc<Self> {
        Arc::new(Self { target, breaker: CircuitBreaker::new(), connections: PerRuntime::new() })
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the address of the server, if it is fixed.
    pub(super) fn server(&self) -> Option<&ConnectionInfo> {
        match &self.target {
            Target::Server(info) => Some(info),
            Target::Sentinel(_) | Target::Manager(_) => None,
        }
    }

    pub(super) fn breaker(&self) -> &CircuitBreaker {
        &self.breaker
    }

    /// Returns the failure of a request that must not be queued, because the circuit breaker is open.
    pub(super) fn refusal(&self) -> Option<RedisFailure> {
        self.breaker.refusal().map(|failure| self.name_server(failure))
    }

    fn acquire(&self) -> Result<Permit, RedisFailure> {
        self.breaker.acquire().map_err(|failure| self.name_server(failure))
    }

    /// Returns the failure with the address of this server, if it is fixed.
    fn name_server(&self, failure: RedisFailure) -> RedisFailure {
        match self.server() {
            Some(info) => failure.at(info.addr()),
            None => failure,
        }
    }

    /// Returns a channel over the existing connection; `None` if the server has to be dialled.
    pub(super) fn channel_now(self: &Arc<Self>) -> Option<Result<NodeChannel, RedisFailure>> {
        match self.acquire() {
            Ok(permit) => {
                let connection = self.usable_connection()?;
                self.target.recheck_if_due();
                Some(Ok(NodeChannel { node: Arc::clone(self), connection, permit }))
            }
            Err(failure) => {
                self.target.recheck_if_due();
                Some(Err(failure))
            }
        }
    }

    /// Returns a channel. Dials if there is no connection.
    pub(super) async fn channel(self: &Arc<Self>) -> Result<NodeChannel, RedisFailure> {
        let permit = self.acquire()?;
        Ok(NodeChannel { node: Arc::clone(self), connection: self.connection().await?, permit })
    }

    /// Returns the connection. Dials if there is none.
    pub(super) async fn connection(&self) -> Result<SharedConnection, RedisFailure> {
        if let Target::Manager(manager) = &self.target {
            return Ok(SharedConnection::from(ConnectionManager::clone(manager)));
        }
        let own = self.own();
        if let Some(connection) = own.usable(&self.breaker) {
            return Ok(connection);
        }
        let run = own.dial.run(self.redial(&own)).await;
        own.usable(&self.breaker).ok_or_else(|| {
            let failure = own.state().last_failure.clone();
            failure.unwrap_or_else(|| {
                let message = if run == RunResult::TooSoon { DIALLED_JUST_NOW } else { DIAL_LOST };
                self.name_server(unavailable(message))
            })
        })
    }

    /// Returns the connection, unless the breaker is open.
    pub(super) fn working_connection(&self) -> Option<SharedConnection> {
        if self.breaker.is_open() { None } else { self.usable_connection() }
    }

    async fn redial(&self, own: &RuntimeConnection) {
        match self.target.dial().await {
            Ok(connection) => {
                let dialled = DialledConnection { connection, openings: self.breaker.openings() };
                *own.state() = ConnectionState { connection: Some(dialled), last_failure: None };
            }
            Err(failure) => {
                own.state().last_failure = Some(failure);
                self.breaker.trip();
            }
        }
    }

    fn usable_connection(&self) -> Option<SharedConnection> {
        match &self.target {
            Target::Manager(manager) => Some(SharedConnection::from(ConnectionManager::clone(manager))),
            Target::Server(_) | Target::Sentinel(_) => self.own().usable(&self.breaker),
        }
    }

    /// Returns the connection of the runtime that the caller runs in.
    fn own(&self) -> Arc<RuntimeConnection> {
        self.connections.current(RuntimeConnection::new, RuntimeConnection::is_over)
    }
}

impl RuntimeConnection {
    fn new() -> Self {
        Self { dial: SingleFlight::new(DIAL_INTERVAL), state: Mutex::default() }
    }

    /// Returns the connection, if it can be used for a call.
    fn usable(&self, breaker: &CircuitBreaker) -> Option<SharedConnection> {
        let openings = breaker.openings();
        let mut state = self.state();
        let is_usable =
            |dialled: &DialledConnection| dialled.openings == openings && !dialled.connection.is_retired();
        state.connection = state.connection.take().filter(is_usable);
        state.connection.as_ref().map(|dialled| dialled.connection.clone())
    }

    /// Whether the connection has ended, probably with its runtime, and nothing else is to be remembered.
    fn is_over(&self) -> bool {
        let is_retired = |dialled: &DialledConnection| dialled.connection.is_retired();
        self.state().connection.as_ref().is_some_and(is_retired) && self.dial.is_due()
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeChannel {
    /// Runs the call once. The caller has to handle redirections and failures.
    pub(super) async fn run(mut self, request: ScriptRequest<'_>) -> CommandOutcome {
        self.permit.start_call(request.call_timeout);
        let outcome = self.connection.run(request.call, request.ownership).await;
        match &outcome {
            CommandOutcome::Lost(_) | CommandOutcome::NotSent(_) => {
                self.connection.retire();
                self.permit.fail();
            }
            CommandOutcome::ReadOnly(_) => {
                self.connection.retire();
                self.permit.succeed();
            }
            _ => self.permit.succeed(),
        }
        outcome
    }
}

/// A script call, and the way in which it is sent.
#[derive(Clone, Copy)]
pub(super) struct ScriptRequest<'c> {
    pub(super) call: &'c ScriptCall,
    pub(super) call_timeout: Duration,
    pub(super) ownership: SlotOwnership,
}

const DIALLED_JUST_NOW: &str = "connection lost; dialling again within 200 ms";
const DIAL_LOST: &str = "the dial was cancelled, probably because its async runtime shut down";

fn unavailable(message: &'static str) -> RedisFailure {
    RedisFailure::new(RedisFailureKind::Unavailable, message)
}
