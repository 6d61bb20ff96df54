//! Peers: the connections and the memory of one client address.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Semaphore;

/// The number of batches of one peer that the server decides at a time. Batches of all peers take turns, so
/// a peer that sends a thousand batches delays only itself.
const BATCHES_PER_PEER: usize = 2;

/// The key of a peer: an IPv4 address, or an IPv6 /64 network, because providers assign a /64 to one
/// customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum PeerKey {
    V4(Ipv4Addr),
    V6([u16; 4]),
}

impl PeerKey {
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

/// The resources that all connections of one peer use.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) key: PeerKey,
    /// The number of open connections. Only changed under the registry's lock.
    pub(super) open_connections: AtomicUsize,
    /// The bytes of the memory budget that these connections hold.
    held_bytes: AtomicU64,
    /// The last tick in which the server could not free memory for this peer.
    pub(super) last_refusal: AtomicU32,
    /// The number of open streams.
    pub(super) streams: AtomicU64,
    /// Permits to decide a batch.
    pub(super) batch_permits: Semaphore,
}

impl Peer {
    pub(super) fn new(key: PeerKey) -> Self {
        Self {
            key,
            open_connections: AtomicUsize::new(0),
            held_bytes: AtomicU64::new(0),
            last_refusal: AtomicU32::new(u32::MAX),
            streams: AtomicU64::new(0),
            batch_permits: Semaphore::new(BATCHES_PER_PEER),
        }
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn hold(&self, bytes: u64) {
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn release(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_an_ipv4_address_or_an_ipv6_network() {
        let key = |text: &str| PeerKey::of(text.parse().unwrap_or_else(|error| panic!("{text}: {error}")));
        assert_eq!(key("192.0.2.1"), key("::ffff:192.0.2.1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_eq!(key("2001:db8:1:2::1"), key("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
    }
}
