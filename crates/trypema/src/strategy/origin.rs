//! Names the count that units joined.

/// Names the count of a counter that units joined, so that they are refunded to no other one: after the windows of
/// a limit changed, a counter may hold only other calls' units at the same time.
///
/// [`Strategy::origin`](super::Strategy::origin) returns it. The default is that of strategies that remember the time of
/// every unit, and need no more than that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Origin {
    /// The end of the window in which the units were counted; 0 if the strategy has no windows that end.
    pub(crate) window_end: u64,
    /// The number of the count.
    pub(crate) count: u32,
}

/// The number of a count. Others join a count as long as nothing of it is forgotten, so the units of a call are certain
/// to be in it.
///
/// The number is taken from the time, so that a count that begins after another one was forgotten has another number.
/// Two counts of the same window have the same number with a chance of one in four million.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CountId(u32);

/// The numbers of counts are below this.
#[cfg(feature = "_redis")]
pub(super) const COUNTS: u32 = 1 << CountId::BITS;

impl CountId {
    /// The number of bits: what two numbers below 2^53 leave free of two words.
    const BITS: u32 = 2 * NumberPair::FREE_BITS;

    /// Returns the number of a count that begins at `now`.
    #[inline(always)]
    pub(super) const fn begun_at(now: u64) -> Self {
        Self(now as u32 & ((1 << Self::BITS) - 1))
    }

    /// Returns the number of the count that goes on from this one, if a part of this one may be forgotten.
    #[inline(always)]
    pub(super) const fn next(self) -> Self {
        Self::begun_at(self.0 as u64 + 1)
    }

    pub(super) const fn number(self) -> u32 {
        self.0
    }
}

/// Two numbers below 2^53, and the number of a count in the bits that they leave free.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NumberPair([u64; 2]);

impl NumberPair {
    const FREE_BITS: u32 = 11;
    const FREE: u64 = (1 << Self::FREE_BITS) - 1;

    #[inline(always)]
    pub(super) const fn new(first: u64, second: u64, count: CountId) -> Self {
        let count = count.0 as u64;
        Self([
            first << Self::FREE_BITS | count >> Self::FREE_BITS,
            second << Self::FREE_BITS | count & Self::FREE,
        ])
    }

    #[inline(always)]
    pub(super) const fn first(self) -> u64 {
        self.0[0] >> Self::FREE_BITS
    }

    #[inline(always)]
    pub(super) const fn second(self) -> u64 {
        self.0[1] >> Self::FREE_BITS
    }

    #[inline(always)]
    pub(super) const fn count(self) -> CountId {
        let [first, second] = self.0;
        CountId(((first & Self::FREE) << Self::FREE_BITS | second & Self::FREE) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_count_are_kept_apart() {
        let most = (1 << 53) - 1;
        for (first, second) in [(0, 0), (most, 0), (0, most), (most, most), (1_600_000_000_000_000, 7)] {
            for now in [0, 1, 2_047, 2_048, (1 << 22) - 1, 1 << 22, most] {
                let count = CountId::begun_at(now);
                let pair = NumberPair::new(first, second, count);
                assert_eq!((pair.first(), pair.second(), pair.count()), (first, second, count));
            }
        }
    }

    #[test]
    fn the_last_number_is_followed_by_the_first_one() {
        assert_eq!(CountId::begun_at((1 << 22) - 1).next(), CountId::begun_at(0));
        assert_eq!(CountId::begun_at(7).next().number(), 8);
    }
}
