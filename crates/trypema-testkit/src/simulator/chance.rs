//! Chance as a share, which traffic and keys are drawn by.

use crate::random::Random;

/// A number from 0 up to, but not including, 1, in steps of 2^-53.
pub(super) fn share(random: &mut Random) -> f64 {
    const STEPS: u64 = 1 << 53;
    random.below(STEPS) as f64 / STEPS as f64
}
