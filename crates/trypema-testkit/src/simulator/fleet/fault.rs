//! The faults of a fleet.

/// A fault and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledFault {
    /// The time, from the start.
    pub after_us: u64,
    /// The fault.
    pub fault: Fault,
}

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The store answers nothing for a while. It processes requests that arrive meanwhile afterwards.
    Freeze {
        /// The duration.
        for_us: u64,
    },
    /// An instance is killed and loses its state. A new one replaces it later.
    Kill {
        /// The instance.
        instance: u32,
        /// The time until the replacement.
        for_us: u64,
    },
    /// An instance stops after it returns its leases. A new one replaces it later.
    Stop {
        /// The instance.
        instance: u32,
        /// The time until the replacement.
        for_us: u64,
    },
    /// The store loses all data.
    FlushAll,
    /// The store goes back to an earlier state.
    Failover {
        /// The age of that state.
        lost_us: u64,
    },
    /// An instance resets a key.
    Reset {
        /// The instance.
        instance: u32,
        /// The key.
        key: u32,
    },
    /// An instance changes its limit.
    ChangeLimit {
        /// The instance.
        instance: u32,
        /// The position of the limit in [`Fleet::limits`](super::Fleet::limits).
        limit: usize,
    },
}
