//! Divides the limit of open files (`RLIMIT_NOFILE`) among the connections. Each connection needs one
//! descriptor.

use rustix::process::{Resource, getrlimit, setrlimit};

/// The number of evicted connections that may still be closing. Beyond it, the server refuses new
/// connections.
pub(super) const MAX_CLOSING: usize = 128;
/// The number of connections over their peer's limit that the server holds open at a time. Beyond it, the
/// server closes the oldest one.
const MAX_REFUSED: usize = 1_024;
/// Descriptors for Redis, PostgreSQL, files and logs, and for evicted connections that are still closing.
const RESERVED: u64 = (128 + MAX_CLOSING) as u64;
/// The divisor of the share for connections over their peer's limit: with few descriptors, they get one in
/// eight.
const REFUSED_SHARE: u64 = 8;

/// The number of connections that fit into the limit of open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// The number of connections that the server serves.
    pub(crate) connections: usize,
    /// The number of connections over their peer's limit that the server holds open.
    pub(crate) refused: usize,
}

impl Descriptors {
    /// Raises the limit of open files as far as the system permits, for `wanted` connections, and divides
    /// it.
    pub(crate) fn raise_limit(wanted: usize) -> Self {
        let mut limit = getrlimit(Resource::Nofile);
        let needed = (wanted as u64).saturating_add(RESERVED + MAX_REFUSED as u64);
        if limit.current.is_some_and(|current| current < needed) {
            limit.current = Some(limit.maximum.map_or(needed, |most| most.min(needed)));
            // If the system refuses, the next read returns the old limit.
            let _ = setrlimit(Resource::Nofile, limit);
            limit = getrlimit(Resource::Nofile);
        }
        Self::split(limit.current.unwrap_or(u64::MAX), wanted)
    }

    fn split(limit: u64, wanted: usize) -> Self {
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
            let shares = Descriptors::split(limit, 10_000);
            let used = RESERVED + (shares.connections + shares.refused) as u64;
            assert!(shares.connections >= 1 && used <= limit.max(RESERVED + 1), "{limit}: {shares:?}");
        }
        assert_eq!(Descriptors::split(400, 10_000), Descriptors { connections: 126, refused: 18 });
        assert_eq!(
            Descriptors::split(u64::MAX, 10_000),
            Descriptors { connections: 10_000, refused: MAX_REFUSED }
        );
    }
}
