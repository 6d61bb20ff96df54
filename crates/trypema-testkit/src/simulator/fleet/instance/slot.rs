//! What an instance knows of one key.

use trypema::hybrid::{CallTally, Holding, Pace};
use trypema::strategy::Leasable;

use super::Waiting;

#[derive(Debug)]
pub(super) struct Slot<S: Leasable> {
    /// `None` while it is only counted how often it is called.
    pub(super) holding: Option<Holding<S>>,
    /// Who waits for an answer that is under way.
    pub(super) waiting: Vec<Waiting>,
    /// What was asked for before this changed is not wanted any more.
    pub(super) version: u64,
    /// How often it is called, while nothing is held.
    pub(super) tally: CallTally,
}

impl<S: Leasable> Default for Slot<S> {
    fn default() -> Self {
        Self { holding: None, waiting: Vec::new(), version: 0, tally: CallTally::default() }
    }
}

impl<S: Leasable> Slot<S> {
    /// What is held, nothing as yet if it is new.
    pub(super) fn known(&mut self, limit: &S::Limit, pace: Pace) -> &mut Holding<S> {
        self.holding.get_or_insert_with(|| Holding::new(limit, pace))
    }
}
