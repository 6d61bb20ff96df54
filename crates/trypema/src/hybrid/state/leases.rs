//! The units that an instance holds for one key, each until its lease ends.

use crate::strategy::LeasedUnits;

/// The maximum number of leases held for one key. An instance requests the next lease when one is nearly
/// spent, so more than two are rare. Beyond the maximum, the lease that ends first is returned.
const MAX_LEASES: usize = 8;

/// The maximum number of ended leases with units to return. Units beyond that stay counted until they leave
/// the window.
const MAX_TO_RETURN: usize = 16;

/// The unspent units of one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lease {
    /// The unspent units, and the time at which Redis recorded them.
    pub(super) left: LeasedUnits,
    /// The time from which the units must not be spent, by the instance's clock.
    pub(super) ends_at: u64,
}

/// All leases of a key.
#[derive(Debug, Clone, Default)]
pub(super) struct Leases {
    /// Ordered by their end, which is also the order of spending.
    live: Vec<Lease>,
    left: u64,
    to_return: Vec<LeasedUnits>,
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

    /// Spends up to `units` of the held units. Passes each spent part to `on_spent`, with the time at which
    /// Redis recorded it.
    #[inline]
    pub(super) fn spend(&mut self, units: u64, mut on_spent: impl FnMut(LeasedUnits)) {
        let mut owing = units.min(self.left);
        self.left -= owing;
        for lease in &mut self.live {
            let spent = owing.min(lease.left.units);
            lease.left.units -= spent;
            owing -= spent;
            if spent > 0 {
                on_spent(LeasedUnits { units: spent, ..lease.left });
            }
            if owing == 0 {
                return;
            }
        }
    }

    /// Returns spent units to their lease. If the lease has ended, they are to be returned to Redis.
    pub(super) fn restore(&mut self, units: LeasedUnits) {
        let is_same = |lease: &&mut Lease| LeasedUnits { units: units.units, ..lease.left } == units;
        match self.live.iter_mut().find(is_same) {
            Some(lease) => {
                lease.left.units += units.units;
                self.left += units.units;
            }
            None => self.return_later(units),
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
        self.to_return.retain(|units| units.resets >= resets);
        self.left = self.live.iter().map(|lease| lease.left.units).sum();
    }

    fn end_first(&mut self) {
        let ended = self.live.remove(0);
        self.left -= ended.left.units;
        self.return_later(ended.left);
    }

    /// Adds units that are to be returned to Redis.
    pub(super) fn return_later(&mut self, units: LeasedUnits) {
        if units.units > 0 && self.to_return.len() < MAX_TO_RETURN {
            self.to_return.push(units);
        }
    }

    /// Removes and returns one entry of units to return.
    pub(super) fn next_to_return(&mut self) -> Option<LeasedUnits> {
        self.to_return.pop()
    }

    /// Whether more is to be returned than one request can carry.
    pub(super) fn has_several_to_return(&self) -> bool {
        self.to_return.len() > 1
    }

    pub(super) fn has_units_to_return(&self) -> bool {
        !self.to_return.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty() && self.to_return.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    #[test]
    fn what_was_granted_before_a_reset_is_neither_spent_nor_given_back() {
        let lease = |units, resets| Lease {
            left: LeasedUnits {
                units,
                recorded: Timestamp::from_micros(9),
                resets,
                ..LeasedUnits::default()
            },
            ends_at: 9,
        };
        let mut leases = Leases::default();
        [lease(5, 0), lease(7, 1)].into_iter().for_each(|lease| leases.add(lease));
        leases.return_later(lease(2, 0).left);
        leases.forget_before_reset(1);
        assert_eq!((leases.left(), leases.has_units_to_return()), (7, false));
        leases.spend(9, |units| assert_eq!(units.units, 7));
        assert_eq!(leases.left(), 0);
    }
}
