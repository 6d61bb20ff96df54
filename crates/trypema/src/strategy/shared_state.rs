//! What a state must offer so that keys can share it.

use std::fmt::Debug;

use crate::clock::Timestamp;

/// The state of one key. Keys for which there is no room in memory share states, one for each limit `L`.
pub trait SharedState<L>: Clone + Debug + Default + Send {
    /// Switches to `limit`, in strategies whose state remembers a limit. Other strategies ignore it.
    fn adopt(&mut self, limit: &L) {
        let _ = limit;
    }

    /// Returns a copy of bounded size. Under `limit` it decides the same at `now`, and never admits more later.
    #[must_use]
    fn condensed(&self, limit: &L, now: Timestamp) -> Self {
        let _ = (limit, now);
        self.clone()
    }

    /// Extends the blocks to last at least as long as those of `other`.
    fn merge_blocks(&mut self, other: &Self) {
        let _ = other;
    }
}
