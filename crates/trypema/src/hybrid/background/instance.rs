//! The state that all hybrid limiters of a provider share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::queue::Queue;
use crate::clock::ClockSource;
use crate::redis::Sharer;

/// The time for which an instance counts as live after a heartbeat, or as sharing a key after a lease
/// request.
pub(super) const LIVE_FOR: Duration = Duration::from_secs(3);

/// This process, as one of the instances that share limits.
#[derive(Debug)]
pub(in crate::hybrid) struct Instance {
    pub(in crate::hybrid) clock: ClockSource,
    pub(in crate::hybrid) queue: Queue,
    pub(super) sync_us: u64,
    /// A random number that identifies the instance.
    pub(in crate::hybrid) id: u64,
    leases_asked: AtomicU64,
}

impl Instance {
    pub(in crate::hybrid) fn new(clock: ClockSource, sync_interval: Duration) -> Self {
        Self {
            clock,
            queue: Queue::default(),
            sync_us: u64::try_from(sync_interval.as_micros()).unwrap_or(u64::MAX),
            id: crate::redis::random(),
            leases_asked: AtomicU64::new(0),
        }
    }

    /// Returns this instance as one that shares a key.
    pub(in crate::hybrid) fn sharer(&self) -> Sharer {
        Sharer { instance: self.id, live_for_us: LIVE_FOR.as_micros() as u64 }
    }

    /// Returns this instance as one that no longer shares a key.
    pub(in crate::hybrid) fn leaver(&self) -> Sharer {
        Sharer { live_for_us: 0, ..self.sharer() }
    }

    pub(super) fn count_lease(&self) {
        self.leases_asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of lease requests sent so far.
    pub(in crate::hybrid) fn leases_asked(&self) -> u64 {
        self.leases_asked.load(Ordering::Relaxed)
    }
}
