//! The state that all hybrid limiters of a provider share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::queue::Queue;
use crate::clock::Source;
use crate::redis::Sharer;

/// An instance counts as live until it has sent no heartbeat, or asked for no lease of a key, for this long.
pub(super) const LIVE_FOR: Duration = Duration::from_secs(3);

/// This process, as one of those that share limits.
#[derive(Debug)]
pub(in crate::hybrid) struct Instance {
    pub(in crate::hybrid) clock: Source,
    pub(in crate::hybrid) queue: Queue,
    pub(super) sync_us: u64,
    /// A number that differs between instances.
    pub(in crate::hybrid) id: u64,
    leases_asked: AtomicU64,
}

impl Instance {
    pub(in crate::hybrid) fn new(clock: Source, sync_interval: Duration) -> Self {
        Self {
            clock,
            queue: Queue::default(),
            sync_us: u64::try_from(sync_interval.as_micros()).unwrap_or(u64::MAX),
            id: crate::redis::random(),
            leases_asked: AtomicU64::new(0),
        }
    }

    /// This instance, as one that shares keys.
    pub(in crate::hybrid) fn sharer(&self) -> Sharer {
        Sharer { instance: self.id, live_for_us: LIVE_FOR.as_micros() as u64 }
    }

    /// This instance, leaving.
    pub(in crate::hybrid) fn leaver(&self) -> Sharer {
        Sharer { live_for_us: 0, ..self.sharer() }
    }

    pub(super) fn count_lease(&self) {
        self.leases_asked.fetch_add(1, Ordering::Relaxed);
    }

    /// How often Redis was asked for a lease.
    pub(in crate::hybrid) fn leases_asked(&self) -> u64 {
        self.leases_asked.load(Ordering::Relaxed)
    }
}
