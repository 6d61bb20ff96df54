//! The blocks of a key, one per tier.

use crate::decision::BlockScope;

/// The end of each tier's block; 0 for none. A tier keeps its own block even if the block of the other tier
/// lasts longer: a tier with a block does not start a new one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) temp_ends_at: u64,
    pub(super) long_ends_at: u64,
}

/// The block in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) ends_at: u64,
    pub(super) scope: BlockScope,
}

impl Blocks {
    pub(super) fn is_none(&self) -> bool {
        self.ends_at() == 0
    }

    /// Whether the tier of `scope` has a block.
    pub(super) fn has(&self, scope: BlockScope) -> bool {
        match scope {
            BlockScope::Temp => self.temp_ends_at > 0,
            BlockScope::Long => self.long_ends_at > 0,
        }
    }

    /// Extends the block of `scope` to last until `ends_at`, unless it lasts longer already.
    pub(super) fn extend(&mut self, scope: BlockScope, ends_at: u64) {
        let block = match scope {
            BlockScope::Temp => &mut self.temp_ends_at,
            BlockScope::Long => &mut self.long_ends_at,
        };
        *block = ends_at.max(*block);
    }

    /// Returns the block that ends last. If both end at the same time, returns the long one.
    pub(super) fn in_force(&self) -> Option<Block> {
        let is_long = self.long_ends_at >= self.temp_ends_at;
        let scope = if is_long { BlockScope::Long } else { BlockScope::Temp };
        (!self.is_none()).then_some(Block { ends_at: self.ends_at(), scope })
    }

    /// Returns the end of the last block; 0 if there is none.
    pub(super) fn ends_at(&self) -> u64 {
        self.temp_ends_at.max(self.long_ends_at)
    }

    /// Returns the blocks that have not ended at `now`.
    pub(super) fn live(self, now: u64) -> Self {
        self.moved(now, now)
    }

    /// Returns the blocks that have not ended at `from`, each with its remaining time counted from `to`.
    pub(super) fn moved(self, from: u64, to: u64) -> Self {
        let moved = |ends_at: u64| match ends_at.saturating_sub(from) {
            0 => 0,
            left_us => to + left_us,
        };
        Self { temp_ends_at: moved(self.temp_ends_at), long_ends_at: moved(self.long_ends_at) }
    }
}
