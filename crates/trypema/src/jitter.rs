//! Random delays, so that processes do not all act at the same moment.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Returns a duration from zero to just below `most`, different in every process and at every call.
pub(crate) fn below(most: Duration) -> Duration {
    let most_us = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
    // The standard library has random keys for each new state, so delays need no random generator. The keys are copied by a
    // fork, the number of the process is not.
    Duration::from_micros(RandomState::new().hash_one(std::process::id()) % most_us.max(1))
}
