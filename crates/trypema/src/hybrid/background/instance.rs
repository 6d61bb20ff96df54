//! The state that all hybrid limiters of a provider share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::queue::TaskQueue;
use crate::clock::ClockSource;
use crate::redis::InstanceLiveness;

/// The time for which an instance counts as live after a heartbeat, or as sharing a key after a lease
/// request.
pub(super) const LIVE_FOR: Duration = Duration::from_secs(3);

/// Spreads the numbers of processes over all bits.
const PROCESS_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// This process, as one of the instances that share limits.
#[derive(Debug)]
pub(in crate::hybrid) struct Instance {
    pub(in crate::hybrid) clock: ClockSource,
    pub(in crate::hybrid) queue: TaskQueue,
    pub(super) sync_us: u64,
    /// A random number.
    number: u64,
    /// The number of lease requests sent so far.
    pub(in crate::hybrid) leases_sent: Arc<AtomicU64>,
}

impl Instance {
    pub(in crate::hybrid) fn new(clock: ClockSource, sync_interval: Duration) -> Self {
        Self {
            clock,
            queue: TaskQueue::default(),
            sync_us: u64::try_from(sync_interval.as_micros()).unwrap_or(u64::MAX),
            number: crate::random::number(),
            leases_sent: Arc::default(),
        }
    }

    /// Returns the number that identifies the instance. A process and its forks are different instances.
    pub(in crate::hybrid) fn id(&self) -> u64 {
        // The factor is odd, so different processes have different ids.
        self.number ^ u64::from(std::process::id()).wrapping_mul(PROCESS_FACTOR)
    }

    /// Returns this instance as a live one, which shares its keys.
    pub(in crate::hybrid) fn live(&self) -> InstanceLiveness {
        InstanceLiveness { id: self.id(), live_for_us: LIVE_FOR.as_micros() as u64 }
    }

    /// Returns this instance as one that leaves, and no longer shares its keys.
    pub(in crate::hybrid) fn leaving(&self) -> InstanceLiveness {
        InstanceLiveness { live_for_us: 0, ..self.live() }
    }

    /// Returns the number of lease requests sent so far.
    pub(in crate::hybrid) fn leases_asked(&self) -> u64 {
        self.leases_sent.load(Ordering::Relaxed)
    }
}
