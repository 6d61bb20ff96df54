//! The state of one connection, as other tasks see it.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use tokio::sync::Notify;

use super::memory::STALL_TICKS;
use super::peer::Peer;

/// The phase of a connection. Each phase has its own timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// No byte has arrived yet.
    New = 0,
    /// The last request is answered, and the response is sent.
    Idle = 1,
    /// The head of a request is arriving.
    Head = 2,
    /// The body of a request is arriving. Nothing is decided yet.
    Body = 3,
    /// The server is deciding a request. The registry does not close such a connection to make room,
    /// because the client must learn whether units were spent.
    Busy = 4,
    /// The response is being sent.
    Response = 5,
    /// The registry closed the connection.
    Closed = 6,
}

/// An instruction from the registry to the task of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Keep serving requests.
    Continue,
    /// Finish the current request, then close.
    Finish,
    /// Close immediately.
    Close,
}

/// The shared state of a connection. Its own task writes the phase; the registry reads it and wakes the
/// task through `notify`.
///
/// The registry finds expired timeouts by scanning all connections periodically, so a request sets no timer
/// and takes no lock.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer_address: SocketAddr,
    /// The number of connections that were admitted up to this one. A lower number is an older connection.
    sequence: u64,
    /// The phase and the tick at which it began, in one atomic word. A compare-and-swap closes the connection
    /// only if it is still in the state that the caller read.
    state: AtomicU64,
    is_draining: AtomicBool,
    notify: Notify,
    /// The resources of all connections of this peer.
    pub(super) peer: Arc<Peer>,
    /// The bytes of the memory budget that this connection holds.
    held_bytes: AtomicU64,
    /// The part of `held_bytes` that belongs to responses which the client has not read yet.
    unread_bytes: AtomicU64,
    /// The tick of the last byte that was read or written while the connection held memory.
    last_progress: AtomicU32,
}

/// A snapshot of a connection's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u64);

impl State {
    fn new(phase: Phase, since: u32) -> Self {
        Self(u64::from(since) << 8 | phase as u64)
    }

    pub(super) fn phase(self) -> Phase {
        match self.0 & 0xff {
            0 => Phase::New,
            1 => Phase::Idle,
            2 => Phase::Head,
            3 => Phase::Body,
            4 => Phase::Busy,
            5 => Phase::Response,
            _ => Phase::Closed,
        }
    }

    /// Returns the number of ticks that the phase has lasted.
    pub(super) fn age(self, now: u32) -> u32 {
        now.saturating_sub(u32::try_from(self.0 >> 8).unwrap_or(u32::MAX))
    }
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
            state: AtomicU64::new(State::new(Phase::New, now).0),
            is_draining: AtomicBool::new(false),
            notify: Notify::new(),
        }
    }

    /// Returns the eviction rank of this connection in the state `seen`, or `None` if it must not be
    /// evicted. The registry evicts the highest rank first: connections without a complete request, then
    /// those whose client does not read its response, then idle ones. Within a rank, it evicts the one that
    /// has waited longest, then the oldest.
    pub(super) fn eviction_rank(&self, seen: State, now: u32) -> Option<(u8, u32, Reverse<u64>)> {
        let rank = match seen.phase() {
            Phase::New | Phase::Head | Phase::Body => 2,
            Phase::Response if seen.age(now) >= STALL_TICKS => 1,
            Phase::Idle => 0,
            Phase::Busy | Phase::Response | Phase::Closed => return None,
        };
        Some((rank, seen.age(now), Reverse(self.sequence)))
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

    /// Marks `bytes` of the held memory as an unread response.
    pub(super) fn add_unread(&self, bytes: u64) {
        self.unread_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Resets the bytes of unread responses to zero, and returns the previous number.
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

    /// Enters a new phase. Returns `false` if the registry has closed the connection.
    pub(crate) fn enter(&self, phase: Phase, now: u32) -> bool {
        let next = State::new(phase, now);
        let entered = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            (State(state).phase() != Phase::Closed).then_some(next.0)
        });
        entered.is_ok()
    }

    pub(super) fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    /// Closes the connection if it is still in the state `seen`. Returns whether it did.
    pub(super) fn close_if(&self, seen: State) -> bool {
        let closed = State::new(Phase::Closed, 0).0;
        let is_closed =
            self.state.compare_exchange(seen.0, closed, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if is_closed {
            self.notify.notify_one();
        }
        is_closed
    }

    /// Closes the connection in any phase.
    pub(super) fn close(&self) {
        self.state.store(State::new(Phase::Closed, 0).0, Ordering::Release);
        self.notify.notify_one();
    }

    /// Tells the connection's task to finish the current request and then close.
    pub(super) fn finish(&self) {
        self.is_draining.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// Returns the instruction in force.
    pub(crate) fn instruction(&self) -> Instruction {
        if self.state().phase() == Phase::Closed {
            Instruction::Close
        } else if self.is_draining.load(Ordering::Acquire) {
            Instruction::Finish
        } else {
            Instruction::Continue
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
    use super::super::peer::PeerKey;
    use super::*;

    fn connection(sequence: u64, now: u32) -> Connection {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        Connection::new(address, Arc::new(Peer::new(PeerKey::of(address.ip()))), sequence, now)
    }

    #[test]
    fn a_connection_whose_state_has_changed_is_not_closed() {
        let connection = connection(0, 7);
        let new = connection.state();
        assert_eq!((new.phase(), new.age(9)), (Phase::New, 2));
        assert!(connection.enter(Phase::Busy, 9));
        assert!(!connection.close_if(new), "it has become busy");
        assert_eq!(connection.instruction(), Instruction::Continue);
        assert!(connection.close_if(connection.state()));
        assert!(!connection.enter(Phase::Busy, 10), "it is closed");
        assert_eq!(connection.instruction(), Instruction::Close);
    }

    #[test]
    fn connections_in_use_are_evicted_last() {
        let now = 2 * STALL_TICKS;
        let in_phase = |sequence, phase, age| {
            let connection = connection(sequence, 0);
            connection.enter(phase, now - age);
            connection.eviction_rank(connection.state(), now)
        };
        assert_eq!(in_phase(1, Phase::Busy, now), None);
        assert_eq!(in_phase(1, Phase::Response, STALL_TICKS - 1), None);
        let unread = in_phase(1, Phase::Response, STALL_TICKS);
        assert!(in_phase(9, Phase::New, 1) > unread, "first those without a request");
        assert!(unread > in_phase(1, Phase::Idle, now), "then those that do not read the response");
        assert!(in_phase(2, Phase::Idle, 9) > in_phase(1, Phase::Idle, 1), "then the longest idle");
        assert!(in_phase(1, Phase::New, 9) > in_phase(2, Phase::Head, 9), "then the oldest");
    }
}
