//! What is known of one connection, without asking it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use tokio::sync::Notify;

/// What a connection is doing. How long it may do so is a matter of the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Nothing: no request has begun, or the last one was answered.
    Idle = 0,
    /// The head of a request is arriving.
    Head = 1,
    /// A request is being answered; its body may still be arriving.
    Busy = 2,
}

/// What a connection is told from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Order {
    /// To go on.
    Stay = 0,
    /// To answer what is under way and take no more.
    Finish = 1,
    /// To end now.
    End = 2,
}

/// A connection as others see it: two numbers that its task writes, and a bell that ends it.
///
/// Timeouts are found by looking over all connections now and then. So a request sets no timer, and takes no lock.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    phase: AtomicU8,
    /// Since when, in ticks of the registry.
    since: AtomicU32,
    order: AtomicU8,
    bell: Notify,
}

impl Connection {
    pub(super) fn new(peer: SocketAddr, now: u32) -> Self {
        Self {
            peer,
            phase: AtomicU8::new(Phase::Idle as u8),
            since: AtomicU32::new(now),
            order: AtomicU8::new(Order::Stay as u8),
            bell: Notify::new(),
        }
    }

    /// A new phase begins.
    pub(crate) fn enter(&self, phase: Phase, now: u32) {
        self.since.store(now, Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Idle,
            1 => Phase::Head,
            _ => Phase::Busy,
        }
    }

    /// How many ticks the phase has lasted.
    pub(super) fn age(&self, now: u32) -> u32 {
        now.saturating_sub(self.since.load(Ordering::Relaxed))
    }

    pub(super) fn order(&self) -> Order {
        match self.order.load(Ordering::Acquire) {
            0 => Order::Stay,
            1 => Order::Finish,
            _ => Order::End,
        }
    }

    /// Gives an order; whether it is a new one. A stricter one stands.
    pub(super) fn give(&self, order: Order) -> bool {
        let before = self.order.fetch_max(order as u8, Ordering::AcqRel);
        self.bell.notify_one();
        before < order as u8
    }

    /// Waits for an order.
    pub(super) async fn heard(&self) -> Order {
        self.bell.notified().await;
        self.order()
    }

    /// Waits for the order to end.
    pub(super) async fn ended(&self) {
        while self.heard().await != Order::End {}
    }
}
