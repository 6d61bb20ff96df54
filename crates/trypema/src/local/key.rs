//! Keys as the map stores them: short ones inline, longer ones on the heap, very long ones as a digest.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher};

#[cfg(loom)]
use foldhash::quality::FixedState as RandomState;
#[cfg(not(loom))]
use foldhash::quality::RandomState;

/// The length up to which keys are stored as they are. Longer ones are stored as their start and a digest, so
/// that a hostile key takes no more memory than a digest.
const MAX_BYTES: usize = 255;

/// The number of bytes of the key's start in a digest. With the hexadecimal digits, a digest is longer than
/// any key that is stored as it is, so the two cannot collide.
const DIGEST_START: usize = MAX_BYTES - 31;

const INLINE: usize = 21;

#[derive(Debug)]
pub(super) enum StoredKey {
    Inline { has_returned: bool, len: u8, bytes: [u8; INLINE] },
    Heap { has_returned: bool, bytes: Box<[u8]> },
}

impl StoredKey {
    pub(super) fn new(key: &[u8]) -> Self {
        if key.len() > INLINE {
            return Self::Heap { has_returned: false, bytes: key.into() };
        }
        let mut bytes = [0; INLINE];
        bytes[..key.len()].copy_from_slice(key);
        Self::Inline { has_returned: false, len: key.len() as u8, bytes }
    }

    #[inline]
    pub(super) fn is(&self, key: &[u8]) -> bool {
        are_equal(self.as_bytes(), key)
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes, .. } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            Self::Heap { bytes, .. } => bytes,
        }
    }

    /// Whether the key was called again, since it was stored or this was set to false.
    #[inline(always)]
    pub(super) fn has_returned(&mut self) -> &mut bool {
        match self {
            Self::Inline { has_returned, .. } | Self::Heap { has_returned, .. } => has_returned,
        }
    }
}

/// A randomly seeded hash of keys. A client that does not know the seed cannot aim at a shard.
#[derive(Debug, Default)]
pub(super) struct KeyHasher {
    place: RandomState,
    digest: RandomState,
}

impl KeyHasher {
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        hash_with(&self.place, key)
    }

    /// Whether a key is stored as it is.
    #[inline(always)]
    pub(super) fn is_short(key: &[u8]) -> bool {
        key.len() <= MAX_BYTES
    }

    /// Returns the key as it is stored.
    pub(super) fn bounded<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        if Self::is_short(key) { Cow::Borrowed(key) } else { self.digested(key) }
    }

    #[cold]
    fn digested(&self, key: &[u8]) -> Cow<'static, [u8]> {
        let (one, other) = (hash_with(&self.place, key), hash_with(&self.digest, key));
        let mut bounded = key[..DIGEST_START].to_vec();
        bounded.extend_from_slice(format!("{one:016x}{other:016x}").as_bytes());
        Cow::Owned(bounded)
    }
}

/// Compares keys. For the usual lengths, two or three word comparisons are quicker than a call of `memcmp`.
#[inline]
fn are_equal(one: &[u8], other: &[u8]) -> bool {
    let len = one.len();
    if len != other.len() {
        return false;
    }
    if !(8..=24).contains(&len) {
        return one == other;
    }
    let is_equal_at = |at: usize| one[at..at + 8] == other[at..at + 8];
    is_equal_at(0) && is_equal_at(len - 8) && (len <= 16 || is_equal_at(8))
}

#[inline]
fn hash_with(state: &RandomState, bytes: &[u8]) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_kept_and_told_apart() {
        for len in [0, 1, INLINE - 1, INLINE, INLINE + 1, MAX_BYTES] {
            let text = "k".repeat(len);
            assert_eq!(StoredKey::new(text.as_bytes()).as_bytes(), text.as_bytes());
        }
        assert_eq!(size_of::<StoredKey>(), 24);
    }

    #[test]
    fn keys_differ_wherever_they_differ() {
        for len in 0..40 {
            let one = vec![b'k'; len];
            assert!(are_equal(&one, &one));
            assert!(!are_equal(&one, &vec![b'k'; len + 1]));
            for at in 0..len {
                let mut other = one.clone();
                other[at] = b'x';
                assert!(!are_equal(&one, &other), "{len} {at}");
            }
        }
    }

    #[test]
    fn endless_keys_become_digests() {
        let hasher = KeyHasher::default();
        let (one, other) = ("x".repeat(10_000), "x".repeat(10_001));
        let bounded = |key: &String| hasher.bounded(key.as_bytes()).into_owned();
        assert_eq!(bounded(&one), bounded(&one));
        assert_ne!(bounded(&one), bounded(&other));
        assert_eq!(bounded(&one).len(), MAX_BYTES + 1);
    }
}
