//! What an instance knows of one key.

use trypema::hybrid::{Holding, Pace};
use trypema::strategy::Leasable;

use super::Waiting;

/// So many calls within an interval make a key hot.
const HOT_CALLS: u32 = 4;

#[derive(Debug)]
pub(super) struct Slot<S: Leasable> {
    /// `None` while it is only counted how often it is called.
    pub(super) holding: Option<Holding<S>>,
    /// Who waits for an answer that is under way.
    pub(super) waiting: Vec<Waiting>,
    /// What was asked for before this changed is not wanted any more.
    pub(super) version: u64,
    /// The interval that calls are counted in.
    pub(super) interval: u64,
    calls: u32,
}

impl<S: Leasable> Default for Slot<S> {
    fn default() -> Self {
        Self { holding: None, waiting: Vec::new(), version: 0, interval: 0, calls: 0 }
    }
}

impl<S: Leasable> Slot<S> {
    /// What is held, nothing as yet if it is new.
    pub(super) fn known(&mut self, limit: &S::Limit, pace: Pace) -> &mut Holding<S> {
        self.holding.get_or_insert_with(|| Holding::new(limit, pace))
    }

    /// Counts a call in this interval; whether it is one of many.
    pub(super) fn is_hot(&mut self, interval: u64) -> bool {
        if self.interval != interval {
            (self.interval, self.calls) = (interval, 0);
        }
        self.calls += 1;
        self.calls >= HOT_CALLS
    }
}
