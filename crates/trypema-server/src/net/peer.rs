//! The address that connections come from: how many it has open, and how much memory they hold.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Semaphore;

/// Batches of one peer that are decided at a time. They take turns with those of other peers, so a peer with a thousand of them delays
/// nobody but itself.
const BATCHES_PER_PEER: usize = 2;

/// Connections that are limited together: those of an IPv4 address, or of an IPv6 network of 64 bits, which is what one customer of a
/// provider has.
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

/// The use of all connections of one peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) key: PeerKey,
    /// Connections that are open; changed under the registry's lock.
    pub(super) open: AtomicUsize,
    /// Bytes that they hold of the memory budget.
    held: AtomicU64,
    /// The tick in which no memory could be freed for it.
    pub(super) refused_at: AtomicU32,
    /// Turns for its batches.
    pub(super) batches: Semaphore,
}

impl Peer {
    pub(super) fn new(key: PeerKey) -> Self {
        Self {
            key,
            open: AtomicUsize::new(0),
            held: AtomicU64::new(0),
            refused_at: AtomicU32::new(u32::MAX),
            batches: Semaphore::new(BATCHES_PER_PEER),
        }
    }

    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn hold(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn release(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
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
