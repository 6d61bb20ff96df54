//! Descriptors: every connection is one.

use rustix::process::{Resource, getrlimit, setrlimit};

use super::registry::{MAX_ENDING, MAX_REFUSED};

/// Descriptors that are not connections in use: Redis, files, logs; connections that are about to end, and those over the limit of
/// their peer.
const OTHERS: u64 = (128 + MAX_ENDING + MAX_REFUSED) as u64;

/// Raises the limit as far as the system lets us; how many connections fit.
pub(crate) fn raise_descriptor_limit(wanted: usize) -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    let needed = (wanted as u64).saturating_add(OTHERS);
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |most| most.min(needed)));
        // What is refused shows below.
        let _ = setrlimit(Resource::Nofile, limit);
        limit = getrlimit(Resource::Nofile);
    }
    let fitting = limit.current.map_or(u64::MAX, |current| current.saturating_sub(OTHERS).max(1));
    wanted.min(usize::try_from(fitting).unwrap_or(usize::MAX))
}
