//! One connection to one server, dialled when it is needed and replaced when it no longer answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::dial::{Dialler, Line};
use super::errand::Errand;
use super::gate::{Gate, jittered};
use super::reply::Answer;
use super::script::ScriptCall;
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::redis::{RedisFailure, RedisFailureKind};

/// Dials to one server begin at least this far apart (up to twice as far), however many calls ask for one:
/// a fleet must not storm a server that is just coming back.
const DIAL_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct ManagedConnection {
    shared: Arc<Shared>,
    dial: Errand,
}

/// What the dial in progress needs too.
struct Shared {
    dialler: Dialler,
    gate: Gate,
    state: Mutex<State>,
}

struct State {
    line: Option<Dialled>,
    next_dial: Timestamp,
    last_failure: Option<RedisFailure>,
}

struct Dialled {
    line: Line,
    /// How often the gate had shut when this was dialled: an older connection may be a black hole.
    openings: u64,
}

/// A call, and how it is to be made.
#[derive(Clone, Copy)]
pub(super) struct Request<'c> {
    pub(super) call: &'c ScriptCall,
    /// When the caller will give up, roughly.
    pub(super) deadline: Duration,
    pub(super) standing: Standing,
}

/// Whether the server owns the call's keys already, or was named by the node that is handing them over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Owner,
    Importing,
}

impl ManagedConnection {
    pub(super) fn new(dialler: Dialler) -> Self {
        let state = State { line: None, next_dial: Timestamp::default(), last_failure: None };
        let shared = Shared { dialler, gate: Gate::new(), state: Mutex::new(state) };
        Self { shared: Arc::new(shared), dial: Errand::new() }
    }

    /// Makes the call once. Any answer but a value is the caller's to act on.
    pub(super) async fn run(&self, request: Request<'_>) -> Answer {
        let pass = match self.shared.gate.enter(request.deadline) {
            Ok(pass) => pass,
            Err(failure) => return Answer::NotSent(failure),
        };
        let line = match self.line().await {
            Ok(line) => line,
            Err(failure) => {
                pass.unused();
                return Answer::NotSent(failure);
            }
        };
        let answer = line.run(request).await;
        match &answer {
            Answer::Lost(_) | Answer::NotSent(_) => {
                line.retire();
                pass.unanswered();
            }
            Answer::ReadOnly(_) => {
                line.retire();
                pass.answered();
            }
            _ => pass.answered(),
        }
        answer
    }

    /// The connection, dialled now if there is none.
    pub(super) async fn line(&self) -> Result<Line, RedisFailure> {
        if let Some(line) = self.shared.usable_line() {
            return Ok(line);
        }
        if let Err(failure) = self.begin_dial() {
            // A dial may have ended since we looked.
            return self.shared.usable_line().ok_or(failure);
        }
        self.dial.join().await;
        self.shared.usable_line().ok_or_else(|| self.shared.dial_failure())
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.shared.gate
    }

    /// The connection, if there is one that is believed to work.
    pub(super) fn working_line(&self) -> Option<Line> {
        if self.shared.gate.is_closed() { self.shared.usable_line() } else { None }
    }

    fn begin_dial(&self) -> Result<(), RedisFailure> {
        if self.dial.is_under_way() {
            return Ok(());
        }
        let now = SystemClock.now();
        {
            let mut state = self.shared.state();
            if now < state.next_dial {
                return Err(state.last_failure.clone().unwrap_or_else(dialled_just_now));
            }
            state.next_dial = now + jittered(DIAL_INTERVAL);
        }
        let shared = Arc::clone(&self.shared);
        self.dial.begin(async move { shared.dial().await });
        Ok(())
    }
}

impl Shared {
    async fn dial(&self) {
        match self.dialler.dial().await {
            Ok(line) => {
                let dialled = Dialled { line, openings: self.gate.openings() };
                let mut state = self.state();
                state.line = Some(dialled);
                state.last_failure = None;
            }
            Err(failure) => {
                self.state().last_failure = Some(failure);
                self.gate.shut();
            }
        }
    }

    fn usable_line(&self) -> Option<Line> {
        let openings = self.gate.openings();
        let mut state = self.state();
        let dialled = state.line.as_ref()?;
        if dialled.openings == openings && !dialled.line.is_retired() {
            return Some(dialled.line.clone());
        }
        state.line = None;
        None
    }

    fn dial_failure(&self) -> RedisFailure {
        let failure = self.state().last_failure.clone();
        failure.unwrap_or_else(|| {
            RedisFailure::new(RedisFailureKind::Unavailable, "the dial ended early; did the client panic?")
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn dialled_just_now() -> RedisFailure {
    RedisFailure::new(
        RedisFailureKind::Unavailable,
        "the connection was lost; the next dial is a moment away",
    )
}
