//! A number for each limit of a bucket.

use std::ops::Index;

/// The number of limits up to which no allocation is needed. Most buckets have one or two.
const INLINE: usize = 4;

/// A number for each limit of a bucket, in the order of the limits.
#[derive(Debug, Clone)]
pub(crate) enum PerLimit {
    Few([u64; INLINE]),
    Many(Box<[u64]>),
}

impl PerLimit {
    /// Returns zeros for a bucket of `limits` limits.
    pub(super) fn zeros(limits: usize) -> Self {
        if limits <= INLINE { Self::Few([0; INLINE]) } else { Self::Many(vec![0; limits].into()) }
    }

    /// Returns the value for a bucket with a single limit.
    #[inline(always)]
    pub(super) fn one(number: u64) -> Self {
        let mut few = [0; INLINE];
        few[0] = number;
        Self::Few(few)
    }

    /// Returns the numbers. There may be more of them than limits.
    #[inline]
    pub(super) fn as_slice(&self) -> &[u64] {
        match self {
            Self::Few(numbers) => numbers,
            Self::Many(numbers) => numbers,
        }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [u64] {
        match self {
            Self::Few(numbers) => numbers,
            Self::Many(numbers) => numbers,
        }
    }
}

impl Index<usize> for PerLimit {
    type Output = u64;

    #[inline]
    fn index(&self, position: usize) -> &u64 {
        &self.as_slice()[position]
    }
}
