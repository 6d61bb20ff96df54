//! Random numbers from the operating system, for ids that no other process has and nobody can guess.
//!
//! A call to the system takes a quarter of a microsecond, so each thread draws for many ids at a time. A fork copies what
//! is left and would hand out the same ids, so it draws anew: asking for the number of the process takes less than half
//! as long.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};

/// The bytes that a thread draws at a time.
const POOL: usize = 512;

thread_local! {
    static THREAD_POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; POOL], left: 0, process: 0 }) };
}

struct Pool {
    bytes: [u8; POOL],
    /// The number of bytes, from the start, that were not handed out yet.
    left: usize,
    /// The process that drew them.
    process: u32,
}

/// Returns random bytes, at most [`POOL`].
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    // The thread may be about to end, and have no pool any more.
    THREAD_POOL.try_with(|pool| pool.borrow_mut().take(std::process::id())).unwrap_or_else(|_| {
        let mut bytes = [0; N];
        fill(&mut bytes);
        bytes
    })
}

/// Returns a random number.
pub(crate) fn number() -> u64 {
    u64::from_ne_bytes(bytes())
}

impl Pool {
    fn take<const N: usize>(&mut self, process: u32) -> [u8; N] {
        if self.left < N || self.process != process {
            fill(&mut self.bytes);
            (self.left, self.process) = (POOL, process);
        }
        self.left = self.left.saturating_sub(N);
        let mut taken = [0; N];
        // What was handed out is gone from the pool.
        taken
            .iter_mut()
            .zip(&mut self.bytes[self.left..])
            .for_each(|(byte, left)| *byte = std::mem::take(left));
        taken
    }
}

fn fill(bytes: &mut [u8]) {
    if getrandom::fill(bytes).is_ok() {
        return;
    }
    // The system has no random numbers, for example because a sandbox forbids the call. The keys of hash tables are as
    // random as the standard library can make them.
    for part in bytes.chunks_mut(size_of::<u64>()) {
        let number = RandomState::new().hash_one(std::process::id());
        part.iter_mut().zip(number.to_ne_bytes()).for_each(|(byte, random)| *byte = random);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn nothing_is_handed_out_twice() {
        let drawn: HashSet<[u8; 16]> = (0..10_000).map(|_| bytes()).collect();
        assert_eq!(drawn.len(), 10_000);
        assert!((0..1_000).map(|_| number()).collect::<HashSet<_>>().len() == 1_000);
    }

    /// `tests/redis/fork.rs` forks.
    #[test]
    fn a_copy_of_the_pool_is_of_no_use_in_another_process() {
        let mut pool = Pool { bytes: [0; POOL], left: 0, process: 0 };
        let first: [u8; 16] = pool.take(1);
        let mut copy = Pool { bytes: pool.bytes, ..pool };
        let (parent, child): ([u8; 16], [u8; 16]) = (pool.take(1), copy.take(2));
        assert_ne!(parent, child);
        assert_ne!(first, parent);
        assert_eq!(copy.left, POOL - 16);
    }
}
