//! Exact fractions in lowest terms.

use std::cmp::Ordering;
use std::ops::{Add, Sub};

/// A fraction with a positive denominator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rational {
    above: i128,
    below: i128,
}

impl Rational {
    pub(super) const ZERO: Self = Self { above: 0, below: 1 };

    pub(super) fn new(above: i128, below: i128) -> Self {
        let common = greatest_common_divisor(above.abs(), below).max(1);
        Self { above: above / common, below: below / common }
    }

    pub(super) fn whole(number: u64) -> Self {
        Self::new(i128::from(number), 1)
    }

    pub(super) fn times(self, above: i128, below: i128) -> Self {
        Self::new(self.above * above, self.below * below)
    }

    pub(super) fn floor(self) -> i128 {
        self.above.div_euclid(self.below)
    }

    pub(super) fn ceil(self) -> i128 {
        -(-self.above).div_euclid(self.below)
    }

    /// Returns the nearest `f64`.
    pub(super) fn to_f64(self) -> f64 {
        self.above as f64 / self.below as f64
    }
}

/// Returns the greatest common divisor of two non-negative numbers.
pub(super) fn greatest_common_divisor(a: i128, b: i128) -> i128 {
    // A fast path for 64 bits: nearly all numbers fit, and division is many times faster.
    if let (Ok(mut a), Ok(mut b)) = (u64::try_from(a), u64::try_from(b)) {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        return i128::from(a);
    }
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl Add for Rational {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::new(self.above * other.below + other.above * self.below, self.below * other.below)
    }
}

impl Sub for Rational {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + Self::new(-other.above, other.below)
    }
}

impl PartialOrd for Rational {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rational {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.above * other.below).cmp(&(other.above * self.below))
    }
}
