//! Peers: the connections and the memory of one client address.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Semaphore;
use trypema::http::AddressKey;

/// The number of batches of one peer that the server decides at a time. Batches of all peers take turns, so
/// a peer that sends a thousand batches delays only itself.
const BATCHES_PER_PEER: usize = 2;

/// The resources that all connections of one peer use.
#[derive(Debug)]
pub(super) struct Peer {
    /// An IPv4 address, or an IPv6 /64 network, because providers assign a /64 to one customer.
    pub(super) key: AddressKey,
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
    pub(super) fn new(key: AddressKey) -> Self {
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
