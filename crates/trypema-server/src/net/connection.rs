//! The state of one connection, as other tasks see it.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use tokio::sync::Notify;

use super::memory::STALLED_TICKS;
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
    Answer = 5,
    /// The connection was ended.
    Ended = 6,
}

/// An instruction from the registry to the task of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Continue.
    Stay,
    /// Finish the current request, then close.
    Finish,
    /// Close immediately.
    End,
}

/// The shared state of a connection. Its own task writes the phase; the registry reads it and wakes the
/// task through `bell`.
///
/// The registry finds expired timeouts by scanning all connections periodically, so a request sets no timer
/// and takes no lock.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    /// The number of connections that were admitted before this one.
    number: u64,
    /// The phase and the tick at which it began, in one atomic word. A compare-and-swap ends the connection
    /// only if it is still in the state that the caller read.
    state: AtomicU64,
    is_finishing: AtomicBool,
    bell: Notify,
    /// The resources of all connections of this peer.
    pub(super) usage: Arc<Peer>,
    /// The bytes of the memory budget that this connection holds.
    held: AtomicU64,
    /// The part of `held` that belongs to responses which the client has not read yet.
    unread: AtomicU64,
    /// The tick of the last byte that was read or written while the connection held memory.
    progress: AtomicU32,
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
            5 => Phase::Answer,
            _ => Phase::Ended,
        }
    }

    /// Returns the number of ticks that the phase has lasted.
    pub(super) fn age(self, now: u32) -> u32 {
        now.saturating_sub(u32::try_from(self.0 >> 8).unwrap_or(u32::MAX))
    }
}

impl Connection {
    pub(super) fn new(peer: SocketAddr, usage: Arc<Peer>, number: u64, now: u32) -> Self {
        Self {
            peer,
            usage,
            held: AtomicU64::new(0),
            unread: AtomicU64::new(0),
            progress: AtomicU32::new(now),
            number,
            state: AtomicU64::new(State::new(Phase::New, now).0),
            is_finishing: AtomicBool::new(false),
            bell: Notify::new(),
        }
    }

    /// Returns the eviction rank of this connection in the state `seen`, or `None` if it must not be
    /// evicted. The registry evicts the highest rank first: connections without a complete request, then
    /// those whose client does not read its response, then idle ones. Within a rank, it evicts the one that
    /// has waited longest, then the oldest.
    pub(super) fn dispensability(&self, seen: State, now: u32) -> Option<(u8, u32, Reverse<u64>)> {
        let rank = match seen.phase() {
            Phase::New | Phase::Head | Phase::Body => 2,
            Phase::Answer if seen.age(now) >= STALLED_TICKS => 1,
            Phase::Idle => 0,
            Phase::Busy | Phase::Answer | Phase::Ended => return None,
        };
        Some((rank, seen.age(now), Reverse(self.number)))
    }

    /// Returns the bytes of the memory budget that this connection holds.
    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn hold(&self, bytes: u64, now: u32) {
        if self.held.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.note_progress(now);
        }
        self.usage.hold(bytes);
    }

    pub(super) fn release(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.usage.release(bytes);
    }

    /// Marks `bytes` of the held memory as an unread response.
    pub(super) fn add_unread(&self, bytes: u64) {
        self.unread.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Resets the bytes of unread responses to zero, and returns the previous number.
    pub(super) fn take_unread(&self) -> u64 {
        if self.unread.load(Ordering::Relaxed) == 0 { 0 } else { self.unread.swap(0, Ordering::Relaxed) }
    }

    pub(super) fn note_progress(&self, now: u32) {
        self.progress.store(now, Ordering::Relaxed);
    }

    /// Returns the number of ticks since a byte was read or written.
    pub(super) fn stalled_for(&self, now: u32) -> u32 {
        now.saturating_sub(self.progress.load(Ordering::Relaxed))
    }

    /// Enters a new phase. Returns `false` if the connection was ended.
    pub(crate) fn enter(&self, phase: Phase, now: u32) -> bool {
        let next = State::new(phase, now);
        let entered = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            (State(state).phase() != Phase::Ended).then_some(next.0)
        });
        entered.is_ok()
    }

    pub(super) fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    /// Ends the connection if it is still in the state `seen`. Returns whether it did.
    pub(super) fn end(&self, seen: State) -> bool {
        let ended = State::new(Phase::Ended, 0).0;
        let was_so = self.state.compare_exchange(seen.0, ended, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if was_so {
            self.bell.notify_one();
        }
        was_so
    }

    /// Ends the connection, whatever its phase is.
    pub(super) fn end_anyway(&self) {
        self.state.store(State::new(Phase::Ended, 0).0, Ordering::Release);
        self.bell.notify_one();
    }

    /// Tells the connection's task to finish the current request and then close.
    pub(super) fn finish(&self) {
        self.is_finishing.store(true, Ordering::Release);
        self.bell.notify_one();
    }

    pub(crate) fn order(&self) -> Order {
        if self.state().phase() == Phase::Ended {
            Order::End
        } else if self.is_finishing.load(Ordering::Acquire) {
            Order::Finish
        } else {
            Order::Stay
        }
    }

    /// Waits for the next instruction.
    pub(crate) async fn heard(&self) -> Order {
        self.bell.notified().await;
        self.order()
    }

    /// Waits until the connection is ended.
    pub(super) async fn ended(&self) {
        while self.heard().await != Order::End {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::peer::PeerKey;
    use super::*;

    fn connection(number: u64, now: u32) -> Connection {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        Connection::new(peer, Arc::new(Peer::new(PeerKey::of(peer.ip()))), number, now)
    }

    #[test]
    fn what_has_begun_since_is_not_ended() {
        let connection = connection(0, 7);
        let new = connection.state();
        assert_eq!((new.phase(), new.age(9)), (Phase::New, 2));
        assert!(connection.enter(Phase::Busy, 9));
        assert!(!connection.end(new), "it is busy by now");
        assert_eq!(connection.order(), Order::Stay);
        assert!(connection.end(connection.state()));
        assert!(!connection.enter(Phase::Busy, 10), "it has ended");
        assert_eq!(connection.order(), Order::End);
    }
    #[test]
    fn who_is_in_use_gives_way_last() {
        let now = 2 * STALLED_TICKS;
        let in_phase = |number, phase, age| {
            let connection = connection(number, 0);
            connection.enter(phase, now - age);
            connection.dispensability(connection.state(), now)
        };
        assert_eq!(in_phase(1, Phase::Busy, now), None);
        assert_eq!(in_phase(1, Phase::Answer, STALLED_TICKS - 1), None);
        let unread = in_phase(1, Phase::Answer, STALLED_TICKS);
        assert!(in_phase(9, Phase::New, 1) > unread, "those without a request");
        assert!(unread > in_phase(1, Phase::Idle, now), "then those that do not read");
        assert!(in_phase(2, Phase::Idle, 9) > in_phase(1, Phase::Idle, 1), "then the longest idle");
        assert!(in_phase(1, Phase::New, 9) > in_phase(2, Phase::Head, 9), "then the oldest");
    }
}
