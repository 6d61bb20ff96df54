//! Names the count that units joined.

/// Names the count of a counter that units joined, so that they are refunded to no other one: after the windows of
/// a limit changed, a counter may hold other calls' units at the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The end of the window in which the units were counted; 0 if the strategy has no windows that end.
    pub(crate) window_end: u64,
    /// The number of the count.
    pub(crate) count: u32,
}
