//! One server: its connection, which is dialled when needed and replaced when it fails, and its circuit
//! breaker.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::ConnectionInfo;
use ::redis::aio::ConnectionManager;

use super::circuit_breaker::{CircuitBreaker, Permit};
use super::dial::{Line, Standing, Target};
use super::reply::Answer;
use super::script::ScriptCall;
use super::single_flight::{Run, SingleFlight};
use crate::redis::{RedisFailure, RedisFailureKind};

/// The minimum interval between the starts of two dials to one server. The actual interval is up to twice
/// as long. A fleet must not storm a server that is coming back.
const DIAL_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct Node {
    target: Target,
    breaker: Arc<CircuitBreaker>,
    dial: SingleFlight,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    line: Option<Dialled>,
    last_failure: Option<RedisFailure>,
}

struct Dialled {
    line: Line,
    /// The breaker's opening count when the connection was dialled. A connection from before the last
    /// opening may be dead without having reported an error.
    openings: u64,
}

/// Permission to send one script call, on a connection.
pub(super) struct NodeChannel {
    pub(super) node: Arc<Node>,
    line: Line,
    permit: Permit,
}

impl Node {
    pub(super) fn new(target: Target) -> Arc<Self> {
        Arc::new(Self {
            target,
            breaker: CircuitBreaker::new(),
            dial: SingleFlight::new(DIAL_INTERVAL),
            state: Mutex::default(),
        })
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

    /// Returns a channel over the existing connection; `None` if the server has to be dialled.
    pub(super) fn channel_now(self: &Arc<Self>) -> Option<Result<NodeChannel, RedisFailure>> {
        self.target.recheck_if_due();
        match self.breaker.acquire() {
            Ok(permit) => {
                self.usable_line().map(|line| Ok(NodeChannel { node: Arc::clone(self), line, permit }))
            }
            Err(failure) => Some(Err(failure)),
        }
    }

    /// Returns a channel. Dials if there is no connection.
    pub(super) async fn channel(self: &Arc<Self>) -> Result<NodeChannel, RedisFailure> {
        let permit = self.breaker.acquire()?;
        Ok(NodeChannel { node: Arc::clone(self), line: self.line().await?, permit })
    }

    /// Returns the connection. Dials if there is none.
    pub(super) async fn line(&self) -> Result<Line, RedisFailure> {
        if let Some(line) = self.usable_line() {
            return Ok(line);
        }
        let run = self.dial.run(self.redial()).await;
        self.usable_line().ok_or_else(|| {
            let failure = self.state().last_failure.clone();
            failure.unwrap_or_else(|| {
                unavailable(if run == Run::TooSoon { DIALLED_JUST_NOW } else { DIAL_LOST })
            })
        })
    }

    /// Returns the connection, unless the breaker is open.
    pub(super) fn working_line(&self) -> Option<Line> {
        if self.breaker.is_open() { None } else { self.usable_line() }
    }

    async fn redial(&self) {
        match self.target.dial().await {
            Ok(line) => {
                let dialled = Dialled { line, openings: self.breaker.openings() };
                *self.state() = State { line: Some(dialled), last_failure: None };
            }
            Err(failure) => {
                self.state().last_failure = Some(failure);
                self.breaker.trip();
            }
        }
    }

    fn usable_line(&self) -> Option<Line> {
        if let Target::Manager(manager) = &self.target {
            return Some(Line::from(ConnectionManager::clone(manager)));
        }
        let openings = self.breaker.openings();
        let mut state = self.state();
        let is_usable = |dialled: &Dialled| dialled.openings == openings && !dialled.line.is_retired();
        state.line = state.line.take().filter(is_usable);
        state.line.as_ref().map(|dialled| dialled.line.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeChannel {
    /// Runs the call once. The caller has to handle redirections and failures.
    pub(super) async fn run(mut self, request: Request<'_>) -> Answer {
        self.permit.sending(request.call_timeout);
        let answer = self.line.run(request.call, request.standing).await;
        match &answer {
            Answer::Lost(_) | Answer::NotSent(_) => {
                self.line.retire();
                self.permit.unanswered();
            }
            Answer::ReadOnly(_) => {
                self.line.retire();
                self.permit.answered();
            }
            _ => self.permit.answered(),
        }
        answer
    }
}

/// A script call, and the way in which it is sent.
#[derive(Clone, Copy)]
pub(super) struct Request<'c> {
    pub(super) call: &'c ScriptCall,
    pub(super) call_timeout: Duration,
    pub(super) standing: Standing,
}

const DIALLED_JUST_NOW: &str = "the connection was lost; the next dial is a moment away";
const DIAL_LOST: &str = "the dial ended early; was its async runtime shut down?";

fn unavailable(message: &'static str) -> RedisFailure {
    RedisFailure::new(RedisFailureKind::Unavailable, message)
}
