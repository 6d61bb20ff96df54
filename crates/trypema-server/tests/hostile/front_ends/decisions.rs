//! Decisions that last as long as a test wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use crate::front_ends_of_tests::Decide;

/// More than any test needs.
const MANY: usize = 1 << 20;

/// Answers each request with its own text, once the gate is open.
#[derive(Debug)]
pub(super) struct Decisions {
    gate: Semaphore,
    running: AtomicUsize,
    most: AtomicUsize,
    ended: AtomicUsize,
}

impl Decisions {
    /// Returns decisions behind an open gate.
    pub(super) fn open() -> Arc<Self> {
        let closed = Self::closed();
        closed.open_gate();
        closed
    }

    /// Returns decisions behind a closed gate.
    pub(super) fn closed() -> Arc<Self> {
        let zero = AtomicUsize::default;
        Arc::new(Self { gate: Semaphore::new(0), running: zero(), most: zero(), ended: zero() })
    }

    pub(super) fn open_gate(&self) {
        self.gate.add_permits(MANY);
    }

    /// Returns the number of decisions that have begun and not ended.
    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// Returns the largest number of decisions at a time.
    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    pub(super) fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }

    pub(super) fn echo(self: &Arc<Self>) -> Decide {
        let decisions = Arc::clone(self);
        Arc::new(move |text, _| {
            let decisions = Arc::clone(&decisions);
            Box::pin(async move {
                let running = decisions.running.fetch_add(1, Ordering::SeqCst) + 1;
                decisions.most.fetch_max(running, Ordering::SeqCst);
                drop(decisions.gate.acquire().await);
                decisions.running.fetch_sub(1, Ordering::SeqCst);
                decisions.ended.fetch_add(1, Ordering::SeqCst);
                text
            })
        })
    }
}
