//! What is known of one connection, without asking it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// What a connection is doing. How long it may do so is a matter of the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Nothing: no request has begun, or the last one was answered.
    Idle = 0,
    /// The head of a request is arriving.
    Head = 1,
    /// Its body is arriving; nothing was asked yet.
    Body = 2,
    /// A request is being decided. It is not interrupted: what was spent is to be told.
    Busy = 3,
    /// It was ended.
    Ended = 4,
}

/// What a connection is told from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// To go on.
    Stay,
    /// To answer what is under way and take no more.
    Finish,
    /// To end now.
    End,
}

/// A connection as others see it: a phase that its task writes, and a bell that calls it.
///
/// Timeouts are found by looking over all connections now and then. So a request sets no timer, and takes no lock.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    /// The phase and since when, in one number: whoever ends a connection ends the state that it has seen, and not one that has begun
    /// since.
    state: AtomicU64,
    is_finishing: AtomicBool,
    bell: Notify,
}

/// A state that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u64);

impl State {
    fn new(phase: Phase, since: u32) -> Self {
        Self(u64::from(since) << 8 | phase as u64)
    }

    pub(super) fn phase(self) -> Phase {
        match self.0 & 0xff {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Body,
            3 => Phase::Busy,
            _ => Phase::Ended,
        }
    }

    /// How many ticks of the registry the phase has lasted.
    pub(super) fn age(self, now: u32) -> u32 {
        now.saturating_sub(u32::try_from(self.0 >> 8).unwrap_or(u32::MAX))
    }
}

impl Connection {
    pub(super) fn new(peer: SocketAddr, now: u32) -> Self {
        Self {
            peer,
            state: AtomicU64::new(State::new(Phase::Idle, now).0),
            is_finishing: AtomicBool::new(false),
            bell: Notify::new(),
        }
    }

    /// A new phase begins, unless the connection was ended: whether it was not.
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

    /// Ends it, if it still is as it was seen; whether it was.
    pub(super) fn end(&self, seen: State) -> bool {
        let ended = State::new(Phase::Ended, 0).0;
        let was_so = self.state.compare_exchange(seen.0, ended, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if was_so {
            self.bell.notify_one();
        }
        was_so
    }

    /// Ends it whatever it is doing.
    pub(super) fn end_anyway(&self) {
        self.state.store(State::new(Phase::Ended, 0).0, Ordering::Release);
        self.bell.notify_one();
    }

    /// Lets it answer what is under way, and take no more.
    pub(super) fn finish(&self) {
        self.is_finishing.store(true, Ordering::Release);
        self.bell.notify_one();
    }

    pub(super) fn order(&self) -> Order {
        if self.state().phase() == Phase::Ended {
            Order::End
        } else if self.is_finishing.load(Ordering::Acquire) {
            Order::Finish
        } else {
            Order::Stay
        }
    }

    /// Waits for an order.
    pub(super) async fn heard(&self) -> Order {
        self.bell.notified().await;
        self.order()
    }

    /// Waits for its end.
    pub(super) async fn ended(&self) {
        while self.heard().await != Order::End {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_begun_since_is_not_ended() {
        let connection = Connection::new(SocketAddr::from(([127, 0, 0, 1], 1)), 7);
        let idle = connection.state();
        assert_eq!((idle.phase(), idle.age(9)), (Phase::Idle, 2));
        assert!(connection.enter(Phase::Busy, 9));
        assert!(!connection.end(idle), "it is busy by now");
        assert_eq!(connection.order(), Order::Stay);
        assert!(connection.end(connection.state()));
        assert!(!connection.enter(Phase::Busy, 10), "it has ended");
        assert_eq!(connection.order(), Order::End);
    }
}
