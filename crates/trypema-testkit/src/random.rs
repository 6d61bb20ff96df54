//! A small seeded generator: a seed gives the same trace on every machine.

/// SplitMix64: one addition and one mix per number, good enough to choose test cases.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates the generator of `seed`. Neighbouring seeds give unrelated numbers.
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number from `first` to `last`, both included.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Returns `true` with a probability of 1 in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns one of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_their_range_and_reach_both_ends() {
        let mut random = Random::seeded(1);
        let drawn: Vec<u64> = (0..1_000).map(|_| random.between(3, 7)).collect();
        assert_eq!(drawn.iter().min(), Some(&3));
        assert_eq!(drawn.iter().max(), Some(&7));
    }

    #[test]
    fn a_seed_repeats_itself_and_differs_from_its_neighbour() {
        let first = |seed| Random::seeded(seed).next_u64();
        assert_eq!(first(7), first(7));
        assert_ne!(first(7), first(8));
    }
}
