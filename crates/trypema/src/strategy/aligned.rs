//! Windows aligned to the epoch.

/// The length of a window, with its reciprocal, so that dividing by the length is a multiplication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AlignedWindow {
    pub(super) window_us: u64,
    /// 2^64 divided by the length, rounded down.
    reciprocal: u64,
}

impl AlignedWindow {
    pub(super) fn new(window_us: u64) -> Self {
        let reciprocal = (u128::from(u64::MAX) + 1) / u128::from(window_us.max(1));
        Self { window_us, reciprocal: u64::try_from(reciprocal).unwrap_or(u64::MAX) }
    }

    /// Returns the start of the window that contains `now`.
    #[inline]
    pub(super) fn start_of(&self, now: u64) -> u64 {
        // The quotient is exact or one too small, because `now` is far below 2^64.
        let quotient = ((u128::from(now) * u128::from(self.reciprocal)) >> 64) as u64;
        let start = quotient * self.window_us;
        if now - start >= self.window_us { start + self.window_us } else { start }
    }

    /// Returns the end of the first window that ends at or after `moment`.
    #[inline]
    pub(super) fn end_from(&self, moment: u64) -> u64 {
        self.start_of(moment.saturating_sub(1)) + self.window_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_multiples() {
        let mut now = 0x9E37_79B9_7F4A_7C15_u64;
        for window_us in [1, 2, 3, 7, 1_000, 999_999, 3_600_000_000, 31_622_400_000_000] {
            let aligned = AlignedWindow::new(window_us);
            for edge in [0, window_us - 1, window_us, window_us * 5, window_us * 5 - 1] {
                assert_eq!(aligned.start_of(edge), edge - edge % window_us);
                assert_eq!(aligned.end_from(edge.max(1)), edge.max(1).next_multiple_of(window_us));
            }
            for _ in 0..1_000 {
                now = now.rotate_left(7).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                let now = now >> 11;
                assert_eq!(aligned.start_of(now), now - now % window_us, "{now} {window_us}");
            }
        }
    }
}
