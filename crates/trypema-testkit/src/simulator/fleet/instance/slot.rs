//! The state of one key in an instance.

use trypema::hybrid::{CallTally, Holding, Pace};
use trypema::strategy::Leasable;

use super::Waiting;

#[derive(Debug)]
pub(super) struct Slot<S: Leasable> {
    /// The leases; `None` while only calls are counted.
    pub(super) holding: Option<Holding<S>>,
    /// The calls that wait for a reply in flight.
    pub(super) waiting: Vec<Waiting>,
    /// Increases when earlier requests become obsolete.
    pub(super) version: u64,
    /// The number of calls, while there are no leases.
    pub(super) tally: CallTally,
}

impl<S: Leasable> Default for Slot<S> {
    fn default() -> Self {
        Self { holding: None, waiting: Vec::new(), version: 0, tally: CallTally::default() }
    }
}

impl<S: Leasable> Slot<S> {
    /// Returns the leases, created empty for a new key.
    pub(super) fn known(&mut self, limit: &S::Limit, pace: Pace) -> &mut Holding<S> {
        self.holding.get_or_insert_with(|| Holding::new(limit, pace))
    }
}
