//! The limit of open files, shared out among the connections: every connection is a descriptor.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Connections that gave way and have not ended yet, beyond which new ones are refused.
pub(super) const MAX_ENDING: usize = 128;
/// Connections over the limits of their peers that are held open at a time, at most; beyond it the oldest is closed.
const MAX_REFUSED: usize = 1_024;
/// Descriptors for Redis, PostgreSQL, files and logs, and for connections that are about to end.
const RESERVED: u64 = (128 + MAX_ENDING) as u64;
/// With few descriptors, one in so many goes to connections over the limit of their peer.
const REFUSED_SHARE: u64 = 8;

/// The connections that the limit of open files has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Connections that are served.
    pub(crate) connections: usize,
    /// Connections over the limit of their peer that are held open.
    pub(crate) refused: usize,
}

impl Descriptors {
    /// Raises the limit of open files as far as the system permits, for `wanted` connections.
    pub(crate) fn claim(wanted: usize) -> Self {
        let mut limit = getrlimit(Resource::Nofile);
        let needed = (wanted as u64).saturating_add(RESERVED + MAX_REFUSED as u64);
        if limit.current.is_some_and(|current| current < needed) {
            limit.current = Some(limit.maximum.map_or(needed, |most| most.min(needed)));
            // If this is refused, the limit that is read next shows it.
            let _ = setrlimit(Resource::Nofile, limit);
            limit = getrlimit(Resource::Nofile);
        }
        Self::share_out(limit.current.unwrap_or(u64::MAX), wanted)
    }

    fn share_out(limit: u64, wanted: usize) -> Self {
        let available = limit.saturating_sub(RESERVED);
        let refused = (available / REFUSED_SHARE).min(MAX_REFUSED as u64);
        let connections = (available - refused).clamp(1, wanted.max(1) as u64);
        Self { connections: connections as usize, refused: refused as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_is_shared_out_and_never_exceeded() {
        for limit in 0..20_000 {
            let shares = Descriptors::share_out(limit, 10_000);
            let used = RESERVED + (shares.connections + shares.refused) as u64;
            assert!(shares.connections >= 1 && used <= limit.max(RESERVED + 1), "{limit}: {shares:?}");
        }
        assert_eq!(Descriptors::share_out(400, 10_000), Descriptors { connections: 126, refused: 18 });
        assert_eq!(
            Descriptors::share_out(u64::MAX, 10_000),
            Descriptors { connections: 10_000, refused: MAX_REFUSED }
        );
    }
}
