//! Random shares, from which traffic and keys are drawn.

use crate::random::Random;

/// Returns a number from 0 (included) to 1 (excluded), in steps of 2^-53.
pub(super) fn share(random: &mut Random) -> f64 {
    const STEPS: u64 = 1 << 53;
    random.below(STEPS) as f64 / STEPS as f64
}
