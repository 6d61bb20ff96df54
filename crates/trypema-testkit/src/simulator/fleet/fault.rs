//! What can go wrong.

/// A fault, and when it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mishap {
    /// When, from the start.
    pub after_us: u64,
    /// What.
    pub fault: Fault,
}

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The store answers nothing for a while; what arrives meanwhile is carried out afterwards.
    Freeze {
        /// How long.
        for_us: u64,
    },
    /// An instance is killed and forgets everything; another takes its place later.
    Kill {
        /// Which.
        instance: u32,
        /// How long until then.
        for_us: u64,
    },
    /// An instance stops, giving back what it holds; another takes its place later.
    Stop {
        /// Which.
        instance: u32,
        /// How long until then.
        for_us: u64,
    },
    /// The store forgets everything.
    FlushAll,
    /// The store goes back to what it knew a while ago.
    Failover {
        /// How long ago.
        lost_us: u64,
    },
    /// An instance resets a key.
    Reset {
        /// Which instance.
        instance: u32,
        /// Which key.
        key: u32,
    },
    /// An instance goes by another limit from here on.
    ChangeLimit {
        /// Which instance.
        instance: u32,
        /// The limit's place in [`Fleet::limits`](super::Fleet::limits).
        limit: usize,
    },
}
