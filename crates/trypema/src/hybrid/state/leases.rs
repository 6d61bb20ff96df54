//! The units that an instance holds for one key, each until its lease ends.

use crate::strategy::UnspentUnits;

/// The maximum number of leases held for one key. An instance requests the next lease when one is nearly
/// spent, so more than two are rare. Beyond the maximum, the lease that ends first is returned.
const MAX_LEASES: usize = 8;

/// The maximum number of ended leases with units to return. Units beyond that stay counted until they leave
/// the window.
const MAX_BACKS: usize = 16;

/// The unspent units of one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lease {
    /// The unspent units, and the time at which Redis recorded them.
    pub(super) left: UnspentUnits,
    /// The time from which the units must not be spent, by the instance's clock.
    pub(super) ends_at: u64,
}

/// All leases of a key.
#[derive(Debug, Clone, Default)]
pub(super) struct Leases {
    /// Ordered by their end, which is also the order of spending.
    live: Vec<Lease>,
    left: u64,
    backs: Vec<UnspentUnits>,
}

impl Leases {
    /// Returns the number of units that can be spent.
    #[inline]
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Returns the number of units that can still be spent at `moment`.
    pub(super) fn left_at(&self, moment: u64) -> u64 {
        self.live.iter().filter(|lease| lease.ends_at > moment).map(|lease| lease.left.units).sum()
    }

    /// Returns the earliest end of a lease.
    pub(super) fn first_end(&self) -> Option<u64> {
        self.live.first().map(|lease| lease.ends_at)
    }

    pub(super) fn add(&mut self, lease: Lease) {
        if self.live.len() == MAX_LEASES {
            self.end_first();
        }
        let position = self.live.partition_point(|other| other.ends_at <= lease.ends_at);
        self.live.insert(position, lease);
        self.left += lease.left.units;
    }

    /// Spends up to `units` of the held units. Passes each spent part to `tell`, with the time at which
    /// Redis recorded it.
    #[inline]
    pub(super) fn spend(&mut self, units: u64, mut tell: impl FnMut(UnspentUnits)) {
        let mut owing = units.min(self.left);
        self.left -= owing;
        for lease in &mut self.live {
            let spent = owing.min(lease.left.units);
            lease.left.units -= spent;
            owing -= spent;
            if spent > 0 {
                tell(UnspentUnits { units: spent, ..lease.left });
            }
            if owing == 0 {
                return;
            }
        }
    }

    /// Returns spent units to their lease. If the lease has ended, they are to be returned to Redis.
    pub(super) fn put_back(&mut self, back: UnspentUnits) {
        let is_same =
            |lease: &&mut Lease| (lease.left.recorded, lease.left.resets) == (back.recorded, back.resets);
        match self.live.iter_mut().find(is_same) {
            Some(lease) => {
                lease.left.units += back.units;
                self.left += back.units;
            }
            None => self.give_back(back),
        }
    }

    /// Ends the leases that are over at `now`.
    pub(super) fn end_until(&mut self, now: u64) {
        while self.first_end().is_some_and(|end| end <= now) {
            self.end_first();
        }
    }

    /// Ends all leases. Their units are to be returned.
    pub(super) fn end_all(&mut self) {
        self.end_until(u64::MAX);
    }

    /// Drops all leases and all units to return.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Drops units that were granted before the key's reset count reached `resets`. Redis has deleted them
    /// too.
    pub(super) fn forget_before_reset(&mut self, resets: u32) {
        self.live.retain(|lease| lease.left.resets >= resets);
        self.backs.retain(|back| back.resets >= resets);
        self.left = self.live.iter().map(|lease| lease.left.units).sum();
    }

    fn end_first(&mut self) {
        let ended = self.live.remove(0);
        self.left -= ended.left.units;
        self.give_back(ended.left);
    }

    /// Adds units that are to be returned to Redis.
    pub(super) fn give_back(&mut self, back: UnspentUnits) {
        if back.units > 0 && self.backs.len() < MAX_BACKS {
            self.backs.push(back);
        }
    }

    /// Removes and returns one entry of units to return.
    pub(super) fn next_back(&mut self) -> Option<UnspentUnits> {
        self.backs.pop()
    }

    /// Whether more is to be returned than one request can carry.
    pub(super) fn is_piling_up(&self) -> bool {
        self.backs.len() > 1
    }

    pub(super) fn is_owing(&self) -> bool {
        !self.backs.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty() && self.backs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    #[test]
    fn what_was_granted_before_a_reset_is_neither_spent_nor_given_back() {
        let lease = |units, resets| Lease {
            left: UnspentUnits { units, recorded: Timestamp::from_micros(9), resets },
            ends_at: 9,
        };
        let mut leases = Leases::default();
        [lease(5, 0), lease(7, 1)].into_iter().for_each(|lease| leases.add(lease));
        leases.give_back(lease(2, 0).left);
        leases.forget_before_reset(1);
        assert_eq!((leases.left(), leases.is_owing()), (7, false));
        leases.spend(9, |back| assert_eq!(back.units, 7));
        assert_eq!(leases.left(), 0);
    }
}
