//! The state of one connection, as other tasks see it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use tokio::sync::Notify;

use super::peer::Peer;
use super::requests::{RequestPhase, Requests};
use super::state::{Phase, State};
use super::work::NotBegun;

/// The number of requests of one connection that are decided at a time. More would let one connection occupy the server; a client
/// that needs more opens another one.
pub const MAX_DECISIONS: u8 = 16;

/// An instruction from the registry to the task of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instruction {
    /// Keep serving requests.
    Continue,
    /// Finish the requests that have begun, then close.
    Finish,
    /// Close immediately.
    Close,
}

/// The shared state of a connection. Its own tasks write the phase; the registry reads it and wakes the
/// task through `notify`.
///
/// The registry finds expired timeouts by scanning all connections periodically, so a request sets no timer
/// and takes no lock.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer_address: SocketAddr,
    /// The number of connections that were admitted up to this one. A lower number is an older connection.
    pub(super) sequence: u64,
    /// In one atomic word, so that a compare-and-swap closes the connection only if it is still in the state that the caller read.
    state: AtomicU64,
    pub(super) requests: Requests,
    is_draining: AtomicBool,
    notify: Notify,
    /// The resources of all connections of this peer.
    pub(super) peer: Arc<Peer>,
    /// The bytes of the memory budget that this connection holds.
    held_bytes: AtomicU64,
    /// The part of `held_bytes` that belongs to answers in the stream's buffer, which the client has not read yet.
    unread_bytes: AtomicU64,
    /// The tick of the last byte that was read or written while the connection held memory.
    last_progress: AtomicU32,
}

impl Connection {
    pub(super) fn new(peer_address: SocketAddr, peer: Arc<Peer>, sequence: u64, now: u32) -> Self {
        Self {
            peer_address,
            peer,
            held_bytes: AtomicU64::new(0),
            unread_bytes: AtomicU64::new(0),
            last_progress: AtomicU32::new(now),
            sequence,
            state: AtomicU64::new(State::new(now).into()),
            requests: Requests::default(),
            is_draining: AtomicBool::new(false),
            notify: Notify::new(),
        }
    }

    /// Returns the bytes of the memory budget that this connection holds.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn hold(&self, bytes: u64, now: u32) {
        if self.held_bytes.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.record_progress(now);
        }
        self.peer.hold(bytes);
    }

    pub(super) fn release(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.peer.release(bytes);
    }

    /// Marks `bytes` of the held memory as an unread answer.
    pub(super) fn add_unread(&self, bytes: u64) {
        self.unread_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Resets the bytes of unread answers to zero, and returns the previous number.
    pub(super) fn take_unread(&self) -> u64 {
        if self.unread_bytes.load(Ordering::Relaxed) == 0 {
            0
        } else {
            self.unread_bytes.swap(0, Ordering::Relaxed)
        }
    }

    pub(super) fn record_progress(&self, now: u32) {
        self.last_progress.store(now, Ordering::Relaxed);
    }

    /// Returns the number of ticks since a byte was read or written.
    pub(super) fn stalled_for(&self, now: u32) -> u32 {
        now.saturating_sub(self.last_progress.load(Ordering::Relaxed))
    }

    pub(super) fn state(&self) -> State {
        State::from(self.state.load(Ordering::Acquire))
    }

    /// Changes the state unless `change` returns `None`. Returns the new state.
    fn update(&self, change: impl Fn(State) -> Option<State>) -> Option<State> {
        let mut next = None;
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |seen| {
            next = change(seen.into());
            next.map(u64::from)
        });
        next
    }

    /// Enters [`Phase::Head`]: a part of a head has arrived. Its time begins once no request is under way.
    pub(super) fn begin_head(&self, now: u32) {
        self.update(|seen| {
            matches!(seen.phase, Phase::New | Phase::Idle).then(|| seen.in_phase(Phase::Head, now))
        });
    }

    /// Begins a request, and returns its place among the requests of this connection.
    pub(super) fn begin_request(&self, now: u32) -> Result<usize, NotBegun> {
        let place = self.requests.begin(now).ok_or(NotBegun::TooBusy)?;
        if self.update(|seen| seen.is_open().then(|| seen.begin_request(now))).is_none() {
            self.requests.end(place);
            return Err(NotBegun::Closed);
        }
        Ok(place)
    }

    /// Begins the decision of a request, unless it has begun.
    pub(super) fn begin_decision(&self, place: usize, now: u32) -> Result<(), NotBegun> {
        let previous = self.requests.phase(place);
        if previous == RequestPhase::Deciding {
            return Ok(());
        }
        let begun = self.update(|seen| {
            let may_begin = seen.is_open() && seen.deciding < MAX_DECISIONS;
            may_begin.then(|| seen.end_phase(previous, now).begin_decision())
        });
        if begun.is_none() {
            return Err(if self.state().is_open() { NotBegun::TooBusy } else { NotBegun::Closed });
        }
        self.requests.enter(place, RequestPhase::Deciding, now);
        Ok(())
    }

    /// Moves a request that was being read or decided to an answer.
    pub(super) fn begin_answer(&self, place: usize, answer: RequestPhase, now: u32) {
        let previous = self.requests.enter(place, answer, now);
        self.leave_phase(|seen| seen.end_phase(previous, now));
    }

    /// Ends a request. The connection is idle then, or in `after`, if it has no other.
    pub(super) fn end_request(&self, place: usize, after: Phase, now: u32) {
        let previous = self.requests.end(place);
        self.leave_phase(|seen| seen.end_phase(previous, now).end_request(after, now));
    }

    /// Changes the state at the end of something. A connection that [leaves](Self::leave_if) is closed after its last decision.
    fn leave_phase(&self, change: impl Fn(State) -> State) {
        let next = self.update(|seen| Some(change(seen).closed_after_last_decision()));
        if next.is_some_and(|next| next.phase == Phase::Closed) {
            self.notify.notify_one();
        }
    }

    /// Enters [`Phase::Idle`] if every answer has been written.
    pub(super) fn end_answers(&self, now: u32) {
        match self.state().phase {
            Phase::Answer => {
                self.update(|seen| (seen.phase == Phase::Answer).then(|| seen.in_phase(Phase::Idle, now)));
            }
            Phase::Working => self.requests.written(now),
            _ => {}
        }
    }

    /// Closes the connection if it is still in the state `seen`. Returns whether it did.
    pub(super) fn close_if(&self, seen: State) -> bool {
        self.replace_if(seen, seen.in_phase(Phase::Closed, 0))
    }

    /// Lets the connection finish its decisions, begin no further one, and close then, if it is still in the state `seen`. Returns
    /// whether it did.
    pub(super) fn leave_if(&self, seen: State, now: u32) -> bool {
        self.replace_if(seen, seen.in_phase(Phase::Leaving, now).closed_after_last_decision())
    }

    fn replace_if(&self, seen: State, next: State) -> bool {
        let replaced =
            self.state.compare_exchange(seen.into(), next.into(), Ordering::AcqRel, Ordering::Acquire);
        if replaced.is_ok() {
            self.notify.notify_one();
        }
        replaced.is_ok()
    }

    /// Closes the connection in any phase.
    pub(super) fn close(&self) {
        self.update(|seen| Some(seen.in_phase(Phase::Closed, 0)));
        self.notify.notify_one();
    }

    /// Tells the connection's task to finish the requests that have begun, and then close.
    pub(super) fn finish(&self) {
        if !self.is_draining.swap(true, Ordering::AcqRel) {
            self.notify.notify_one();
        }
    }

    /// Returns the instruction in force.
    pub(crate) fn instruction(&self) -> Instruction {
        match self.state().phase {
            Phase::Closed => Instruction::Close,
            Phase::Leaving => Instruction::Finish,
            _ if self.is_draining.load(Ordering::Acquire) => Instruction::Finish,
            _ => Instruction::Continue,
        }
    }

    /// Waits until the registry gives an instruction, and returns it.
    pub(crate) async fn next_instruction(&self) -> Instruction {
        self.notify.notified().await;
        self.instruction()
    }

    /// Waits until the registry closes the connection.
    pub(super) async fn closed(&self) {
        while self.next_instruction().await != Instruction::Close {}
    }
}

#[cfg(test)]
mod tests {
    use trypema::http::AddressKey;

    use super::*;

    fn connection() -> Connection {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        Connection::new(address, Arc::new(Peer::new(AddressKey::of(address.ip()))), 0, 7)
    }

    #[test]
    fn a_connection_whose_state_has_changed_is_not_closed() {
        let connection = connection();
        let new = connection.state();
        assert_eq!((new.phase, new.age(9)), (Phase::New, 2));
        let place = connection.begin_request(9).unwrap();
        connection.begin_decision(place, 9).unwrap();
        assert!(!connection.close_if(new), "it decides");
        assert_eq!(connection.instruction(), Instruction::Continue);
        assert!(connection.close_if(connection.state()));
        assert_eq!(connection.begin_request(10), Err(NotBegun::Closed));
        assert_eq!(connection.instruction(), Instruction::Close);
    }

    #[test]
    fn decisions_of_one_connection_are_bounded() {
        let connection = connection();
        let places: Vec<_> = (0..=MAX_DECISIONS).map(|_| connection.begin_request(7).unwrap()).collect();
        let begun: Vec<_> = places.iter().map(|place| connection.begin_decision(*place, 8)).collect();
        assert_eq!(begun.iter().filter(|begun| begun.is_ok()).count(), usize::from(MAX_DECISIONS));
        assert_eq!(begun.last(), Some(&Err(NotBegun::TooBusy)));
        connection.end_request(places[0], Phase::Idle, 9);
        connection.begin_decision(places[16], 9).unwrap();
    }

    #[test]
    fn a_leaving_connection_closes_after_its_last_decision() {
        let connection = connection();
        let places = [(); 3].map(|()| connection.begin_request(7).unwrap());
        connection.begin_decision(places[0], 7).unwrap();
        connection.begin_decision(places[1], 7).unwrap();
        assert!(connection.leave_if(connection.state(), 8));
        assert_eq!(connection.instruction(), Instruction::Finish);
        assert_eq!(connection.begin_decision(places[2], 8), Err(NotBegun::Closed));
        assert_eq!(connection.begin_request(8), Err(NotBegun::Closed));
        connection.begin_answer(places[0], RequestPhase::Unread, 9);
        assert_eq!(connection.instruction(), Instruction::Finish);
        connection.end_request(places[1], Phase::Idle, 9);
        assert_eq!(connection.instruction(), Instruction::Close);
    }

    #[test]
    fn a_connection_is_idle_after_its_last_request() {
        let connection = connection();
        let places = [(); 2].map(|()| connection.begin_request(7).unwrap());
        assert_eq!(connection.state().phase, Phase::Body);
        connection.begin_decision(places[0], 8).unwrap();
        assert_eq!((connection.state().phase, connection.state().age(9)), (Phase::Body, 1), "the other one");
        connection.begin_decision(places[1], 8).unwrap();
        assert_eq!(connection.state().phase, Phase::Working);
        connection.end_request(places[0], Phase::Answer, 9);
        connection.begin_head(9);
        assert_eq!(connection.state().phase, Phase::Working);
        connection.end_request(places[1], Phase::Answer, 9);
        assert_eq!(connection.state().phase, Phase::Answer);
        connection.end_answers(9);
        assert_eq!(connection.state().phase, Phase::Idle);
    }
}
