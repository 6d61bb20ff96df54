//! The state that all hybrid limiters of a provider share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::queue::TaskQueue;
use crate::clock::ClockSource;
use crate::redis::InstanceLiveness;

/// The time for which an instance counts as live after a heartbeat, or as sharing a key after a lease
/// request.
pub(super) const LIVE_FOR: Duration = Duration::from_secs(3);

/// This process, as one of the instances that share limits.
#[derive(Debug)]
pub(in crate::hybrid) struct Instance {
    pub(in crate::hybrid) clock: ClockSource,
    pub(in crate::hybrid) queue: TaskQueue,
    pub(super) sync_us: u64,
    /// A random number that identifies the instance.
    pub(in crate::hybrid) id: u64,
    leases_asked: AtomicU64,
}

impl Instance {
    pub(in crate::hybrid) fn new(clock: ClockSource, sync_interval: Duration) -> Self {
        Self {
            clock,
            queue: TaskQueue::default(),
            sync_us: u64::try_from(sync_interval.as_micros()).unwrap_or(u64::MAX),
            id: crate::redis::random(),
            leases_asked: AtomicU64::new(0),
        }
    }

    /// Returns this instance as a live one, which shares its keys.
    pub(in crate::hybrid) fn live(&self) -> InstanceLiveness {
        InstanceLiveness { id: self.id, live_for_us: LIVE_FOR.as_micros() as u64 }
    }

    /// Returns this instance as one that leaves, and no longer shares its keys.
    pub(in crate::hybrid) fn leaving(&self) -> InstanceLiveness {
        InstanceLiveness { live_for_us: 0, ..self.live() }
    }

    pub(super) fn count_lease(&self) {
        self.leases_asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of lease requests sent so far.
    pub(in crate::hybrid) fn leases_asked(&self) -> u64 {
        self.leases_asked.load(Ordering::Relaxed)
    }
}
