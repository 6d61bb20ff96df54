//! A request, from its head until its answer is read.
//!
//! HTTP/1.1 has one at a time, HTTP/2 as many as its streams, and a text protocol one for each batch of lines. A request is in one of
//! these phases, each with its own timeout:
//!
//! - It is read. This is timed for the connection as a whole.
//! - It is decided. The connection is then spared, and a front end whose client can cancel a single request runs the
//!   decision in a task of its own, with its [`Work`]: it then goes on to its end, is counted, and counts against its connection, so
//!   that a client which cancels everything gets no more than one which waits.
//! - Its answer is unread. An answer in the connection's buffer is read once that is [written](Work::finish_when_written); an answer
//!   behind a window of its own, as in HTTP/2, once its [bytes are dropped](Work::into_unread).
//! - It is [streamed](Work::into_stream), with a timeout only for parts that the client does not read.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use super::memory::ReservedMemory;
use super::registry::ConnectionSlot;
use super::requests::RequestPhase;
use super::state::Phase;

/// One request of a connection. Dropping it ends the request.
#[derive(Debug)]
pub struct Work {
    slot: Arc<ConnectionSlot>,
    place: usize,
    /// The phase of the connection after its last request.
    pub(super) after: Phase,
}

/// The reason why a request or a decision does not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotBegun {
    /// The registry has closed the connection while the request arrived.
    #[error("the server closed the connection before the request was complete")]
    Closed,
    /// The connection has too many requests.
    #[error("this connection has too many requests at a time")]
    TooBusy,
}

impl ConnectionSlot {
    /// Begins a request whose head has arrived.
    pub fn begin_request(self: &Arc<Self>) -> Result<Work, NotBegun> {
        let place = self.connection.begin_request(self.registry.now())?;
        Ok(Work { slot: Arc::clone(self), place, after: Phase::Idle })
    }
}

impl Work {
    /// Begins the decision, unless it has begun. From here on counters may change, so the client must get an answer.
    pub fn begin_decision(&self) -> Result<(), NotBegun> {
        self.connection.begin_decision(self.place, self.registry.now())
    }

    /// Ends the decision, before the front end has time to send the answer. What ends the request ends its decision, too.
    pub fn end_decision(&self) {
        self.begin_answer(RequestPhase::Unread);
    }

    /// Ends the request once everything in the connection's buffer has been written. Call this before the answer goes there.
    pub fn finish_when_written(mut self) {
        self.after = Phase::Answer;
    }

    /// Returns `bytes` as an answer that is unread until the last copy of it is dropped. `reserved` is its part of the memory budget.
    pub fn into_unread(self, bytes: Bytes, reserved: Option<ReservedMemory>) -> Bytes {
        self.begin_answer(RequestPhase::Unread);
        // The memory first: the request is the last that others wait for.
        Bytes::from_owner(Unread { bytes, _held: (reserved, self) })
    }

    pub(super) fn begin_answer(&self, answer: RequestPhase) {
        self.connection.begin_answer(self.place, answer, self.registry.now());
    }

    /// Enters another phase of the answer.
    pub(super) fn enter(&self, phase: RequestPhase) {
        self.connection.requests.enter(self.place, phase, self.registry.now());
    }
}

impl Deref for Work {
    type Target = Arc<ConnectionSlot>;

    fn deref(&self) -> &Arc<ConnectionSlot> {
        &self.slot
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.connection.end_request(self.place, self.after, self.registry.now());
    }
}

/// Bytes that the client has not read, with what is held until then.
pub(super) struct Unread<T> {
    pub(super) bytes: Bytes,
    pub(super) _held: T,
}

impl<T> AsRef<[u8]> for Unread<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
