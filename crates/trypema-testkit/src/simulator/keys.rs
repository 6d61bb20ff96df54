//! The distribution of calls over keys.

use super::chance::share;
use crate::random::Random;

/// The distribution of calls over keys. Keys are numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Keys {
    /// All calls are for key 0.
    One,
    /// All keys are equally likely.
    Uniform {
        /// The number of keys.
        count: usize,
    },
    /// Key k is called in proportion to 1 / (k + 1)^exponent: a few hot keys and a long tail.
    Zipf {
        /// The number of keys.
        count: usize,
        /// The steepness; 1 is the classic one.
        exponent: f64,
    },
}

/// Draws keys at random.
#[derive(Debug, Clone)]
pub(super) struct KeyPicker {
    names: Vec<String>,
    /// The cumulative share of calls, per key.
    cumulative: Vec<f64>,
}

impl KeyPicker {
    pub(super) fn new(keys: Keys) -> Self {
        let weights: Vec<f64> = match keys {
            Keys::One => vec![1.0],
            Keys::Uniform { count } => vec![1.0; count.max(1)],
            Keys::Zipf { count, exponent } => {
                (1..=count.max(1)).map(|rank| (rank as f64).powf(-exponent)).collect()
            }
        };
        let total: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let cumulative = weights.iter().map(|weight| {
            sum += weight;
            sum / total
        });
        Self {
            cumulative: cumulative.collect(),
            names: (0..weights.len()).map(|key| format!("key-{key}")).collect(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.names.len()
    }

    pub(super) fn name(&self, key: usize) -> &str {
        &self.names[key]
    }

    /// Returns the key of the next call. A single key needs no random number.
    pub(super) fn pick(&self, random: &mut Random) -> usize {
        if self.count() == 1 {
            return 0;
        }
        let drawn = share(random);
        self.cumulative.partition_point(|share| *share <= drawn).min(self.count() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(keys: Keys) -> Vec<usize> {
        let picker = KeyPicker::new(keys);
        let mut random = Random::seeded(3);
        let mut counts = vec![0; picker.count()];
        for _ in 0..60_000 {
            counts[picker.pick(&mut random)] += 1;
        }
        counts
    }

    #[test]
    fn zipf_follows_its_law() {
        // 1 + 1/2 + 1/3 = 11/6, so the shares are 6, 3 and 2 elevenths.
        let drawn = counts(Keys::Zipf { count: 3, exponent: 1.0 });
        for (drawn, expected) in drawn.iter().zip([32_727, 16_364, 10_909]) {
            assert!(drawn.abs_diff(expected) < 600, "{drawn} for {expected}");
        }
    }

    #[test]
    fn uniform_is_even_and_one_is_one() {
        for drawn in counts(Keys::Uniform { count: 4 }) {
            assert!(drawn.abs_diff(15_000) < 600, "{drawn}");
        }
        assert_eq!(counts(Keys::One), [60_000]);
    }
}
