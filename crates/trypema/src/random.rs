//! Random numbers from the operating system, for ids that no other process has.
//!
//! Every number is drawn from the system. A generator in the process would be copied by a fork, and both processes would
//! hand out the same ids.

use std::hash::{BuildHasher, RandomState};

/// Returns random bytes. Nobody can guess them.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if getrandom::fill(&mut bytes).is_err() {
        // The system has no random numbers, for example because a sandbox forbids the call. The keys of hash tables are
        // as random as the standard library can make them.
        for part in bytes.chunks_mut(size_of::<u64>()) {
            let number = RandomState::new().hash_one(std::process::id());
            part.iter_mut().zip(number.to_ne_bytes()).for_each(|(byte, random)| *byte = random);
        }
    }
    bytes
}

/// Returns a random number.
pub(crate) fn number() -> u64 {
    u64::from_ne_bytes(bytes())
}
