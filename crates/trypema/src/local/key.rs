//! A key as the map keeps it: short ones inline, long ones on the heap, endless ones as a digest.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;

/// Keys up to this long are kept as they are; longer ones are named by their start and a digest, so that a
/// hostile key cannot take more memory than this.
const MAX_BYTES: usize = 255;

/// What a digest keeps of the key's start: with the hexadecimal digits it is longer than any key that is
/// kept as it is, so that the two cannot meet.
const DIGEST_START: usize = MAX_BYTES - 31;

const INLINE: usize = 22;

#[derive(Debug)]
pub(super) enum Key {
    Inline { len: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

impl Key {
    pub(super) fn new(key: &[u8]) -> Self {
        if key.len() > INLINE {
            return Self::Heap(key.into());
        }
        let mut bytes = [0; INLINE];
        bytes[..key.len()].copy_from_slice(key);
        Self::Inline { len: key.len() as u8, bytes }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            Self::Heap(bytes) => bytes,
        }
    }
}

/// A seeded hash of keys: who does not know the seed cannot aim at a shard.
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

    /// The key as it is kept.
    #[inline]
    pub(super) fn bounded<'k>(&self, key: &'k str) -> Cow<'k, [u8]> {
        if key.len() <= MAX_BYTES { Cow::Borrowed(key.as_bytes()) } else { self.digested(key.as_bytes()) }
    }

    #[cold]
    fn digested(&self, key: &[u8]) -> Cow<'static, [u8]> {
        let (one, other) = (hash_with(&self.place, key), hash_with(&self.digest, key));
        let mut bounded = key[..DIGEST_START].to_vec();
        bounded.extend_from_slice(format!("{one:016x}{other:016x}").as_bytes());
        Cow::Owned(bounded)
    }
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
            assert_eq!(Key::new(text.as_bytes()).as_bytes(), text.as_bytes());
        }
        assert_eq!(size_of::<Key>(), 24);
    }

    #[test]
    fn endless_keys_become_digests() {
        let hasher = KeyHasher::default();
        let (one, other) = ("x".repeat(10_000), "x".repeat(10_001));
        assert_eq!(hasher.bounded(&one), hasher.bounded(&one));
        assert_ne!(hasher.bounded(&one), hasher.bounded(&other));
        assert_eq!(hasher.bounded(&one).len(), MAX_BYTES + 1);
    }
}
