//! One memory budget for all connections: request bodies that are arriving, and responses that clients have
//! not read yet.
//!
//! A connection reserves memory before it allocates. When the budget is exhausted, the server closes
//! connections to make room:
//!
//! - connections of peers that hold more than the requesting peer would hold, and
//! - connections of any peer that have made no progress for [`STALL_TIMEOUT`].
//!
//! The last sixteenth of the budget is reserved for peers that hold less than a sixteenth, so that they
//! find room immediately.
//!
//! So no peer can close the connections of a peer that holds less and makes progress: an attacker, which
//! holds the most, can only lose connections. A connection whose request is being decided is never closed to
//! make room, because the client must learn whether units were spent. If it also holds memory for other requests, it is closed after
//! its last decision. A decision protects its connection only for a [bounded time](super::eviction). If nothing can be closed, the server
//! refuses the request that needs room.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::connection::Connection;
use super::registry::{ConnectionSlot, Registry, TICK};
use super::state::{Phase, State};

/// The size up to which a body or a response is not accounted for. Nearly every check is smaller, and its
/// connection has buffers of this size anyway.
pub const UNACCOUNTED_BYTES: usize = 4 * 1024;
/// The time without a byte read or written after which a connection that holds memory can be closed for any
/// other.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(2);
/// [`STALL_TIMEOUT`] in ticks.
pub(super) const STALL_TICKS: u32 = (STALL_TIMEOUT.as_millis() / TICK.as_millis()) as u32;
/// The divisor of the smallest part of the budget that is freed at a time, so that the registry seldom
/// scans all connections.
const MIN_FREED_DIVISOR: u64 = 16;
/// The divisor of the part of the budget that is reserved for peers which hold less than that part. Their
/// requests find room without waiting for other connections to close.
const RESERVED_DIVISOR: u64 = 16;
/// The time that a request waits for closed connections to release their memory.
const RESERVE_TIMEOUT: Duration = Duration::from_millis(100);
/// The time that a crowded peer waits for a refusal. Without it, each of its connections would send the
/// next large body at once, hundreds of times a second.
const REFUSAL_DELAY: Duration = Duration::from_secs(1);
/// The interval at which a waiting request checks the budget again.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// A part of the memory budget. Dropping it releases the memory.
#[derive(Debug)]
pub struct ReservedMemory {
    registry: Arc<Registry>,
    connection: Arc<Connection>,
    bytes: u64,
}

/// A connection that may be closed to make room.
struct EvictionCandidate<'c> {
    connection: &'c Arc<Connection>,
    state: State,
    held: u64,
    stalled_for: u32,
}

impl ReservedMemory {
    /// Grows the reservation to `bytes`. Returns whether there was room. A reservation never shrinks.
    pub(crate) async fn grow_to(&mut self, bytes: usize) -> bool {
        let more = (bytes as u64).saturating_sub(self.bytes);
        let has_room = self.registry.reserve(&self.connection, more).await;
        self.bytes += if has_room { more } else { 0 };
        has_room
    }

    /// Converts the reserved memory into that of a response of `bytes`, which stays accounted for until the
    /// client has read it.
    pub(crate) fn into_unread_response(mut self, bytes: usize) {
        let bytes = bytes as u64;
        if bytes > self.bytes {
            self.registry.force_hold(&self.connection, bytes - self.bytes);
        } else {
            self.registry.release(&self.connection, self.bytes - bytes);
        }
        self.connection.add_unread(bytes);
        // The connection owns the memory from now on.
        self.bytes = 0;
    }
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        self.registry.release(&self.connection, self.bytes);
    }
}

impl ConnectionSlot {
    /// Reserves memory for a body, or for a response that is about to be written. Returns `None` if there
    /// is no room.
    pub async fn reserve(&self, bytes: usize) -> Option<ReservedMemory> {
        let mut reservation = self.reserve_nothing();
        reservation.grow_to(bytes).await.then_some(reservation)
    }

    fn reserve_nothing(&self) -> ReservedMemory {
        let (registry, connection) = (Arc::clone(&self.registry), Arc::clone(&self.connection));
        ReservedMemory { registry, connection, bytes: 0 }
    }

    /// Reserves memory if there is room without closing a connection.
    pub(super) fn try_reserve(&self, bytes: usize) -> Option<ReservedMemory> {
        let has_room = self.registry.try_hold(&self.connection, bytes as u64);
        has_room.then(|| {
            let mut reserved = self.reserve_nothing();
            reserved.bytes = bytes as u64;
            reserved
        })
    }

    /// Accounts for a response until the client has read it. Returns whether there is room.
    pub(crate) async fn hold_response(&self, bytes: usize) -> bool {
        let reserved = self.reserve(bytes).await;
        reserved.map(|reserved| reserved.into_unread_response(bytes)).is_some()
    }

    /// Accounts for a response that must be sent, even if it exceeds the budget.
    pub(crate) fn force_hold_response(&self, bytes: usize) {
        self.reserve_nothing().into_unread_response(bytes);
    }

    /// Releases the memory of all responses. The caller has written every byte of them.
    pub(super) fn release_responses(&self) {
        self.registry.release(&self.connection, self.connection.take_unread());
    }

    /// Records that bytes were read or written.
    pub(super) fn record_progress(&self) {
        if self.connection.held_bytes() > 0 {
            self.connection.record_progress(self.registry.now());
        }
    }
}

impl Registry {
    /// Reserves `bytes` for a connection; frees memory if need be. Returns whether there was room.
    async fn reserve(&self, connection: &Connection, bytes: u64) -> bool {
        if bytes == 0 || self.try_hold(connection, bytes) {
            return true;
        }
        for _ in 0..RESERVE_TIMEOUT.as_millis() / RETRY_INTERVAL.as_millis() {
            if !self.free_memory(connection, bytes) {
                break;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
            if self.try_hold(connection, bytes) {
                return true;
            }
        }
        self.metrics.memory_refusals.add_one();
        if self.memory_log.try_claim(self.now()) {
            let (limit, held) =
                (self.max_buffered_bytes, self.metrics.buffered_bytes.load(Ordering::Relaxed));
            tracing::warn!(
                "net: request bodies and unread responses hold {held} bytes of max_buffered_bytes={limit}; refusing \
                 requests with 503 (logged once a minute)"
            );
        }
        if self.is_crowded(connection) {
            tokio::time::sleep(REFUSAL_DELAY).await;
        }
        false
    }

    /// Counts `bytes` as held by a connection if they fit into its budget. Returns whether they did.
    fn try_hold(&self, connection: &Connection, bytes: u64) -> bool {
        let limit = self.budget_for(connection, bytes);
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= limit);
        let buffered = &self.metrics.buffered_bytes;
        let has_room = buffered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if has_room {
            connection.hold(bytes, self.now());
        }
        has_room
    }

    /// Returns the part of the budget that the peer of `connection` may fill when it needs `bytes` more.
    fn budget_for(&self, connection: &Connection, bytes: u64) -> u64 {
        let reserved = self.max_buffered_bytes / RESERVED_DIVISOR;
        if self.fits_reserved_share(connection, bytes) {
            self.max_buffered_bytes
        } else {
            self.max_buffered_bytes - reserved
        }
    }

    /// Whether the peer would hold at most a sixteenth of the budget with `bytes` more.
    fn fits_reserved_share(&self, connection: &Connection, bytes: u64) -> bool {
        connection.peer.held_bytes().saturating_add(bytes) <= self.max_buffered_bytes / RESERVED_DIVISOR
    }

    /// Counts `bytes` as held by a connection, even beyond the budget.
    fn force_hold(&self, connection: &Connection, bytes: u64) {
        self.metrics.buffered_bytes.fetch_add(bytes, Ordering::Relaxed);
        connection.hold(bytes, self.now());
    }

    fn release(&self, connection: &Connection, bytes: u64) {
        if bytes > 0 {
            self.metrics.buffered_bytes.fetch_sub(bytes, Ordering::Relaxed);
            connection.release(bytes);
        }
    }

    /// Closes connections so that `bytes` more fit. Returns whether they will fit once these connections
    /// have closed.
    fn free_memory(&self, requester: &Connection, bytes: u64) -> bool {
        let now = self.now();
        // At most one failed scan per peer and tick: otherwise an attacker could have the server scan
        // thousands of connections for every request.
        if requester.peer.last_refusal.load(Ordering::Relaxed) == now {
            return false;
        }
        let used = self.metrics.buffered_bytes.load(Ordering::Relaxed);
        let missing = used.saturating_add(bytes).saturating_sub(self.budget_for(requester, bytes));
        let share = requester.peer.held_bytes().saturating_add(bytes);
        let table = self.lock_table();
        let mut freed = 0;
        let mut candidates = Vec::new();
        for connection in table.connections().filter(|other| !std::ptr::eq(&***other, requester)) {
            let (held, state) = (connection.held_bytes(), connection.state());
            let stalled_for = connection.stalled_for(now);
            let is_larger = connection.peer.key != requester.peer.key && connection.peer.held_bytes() > share;
            match state.phase {
                _ if held == 0 => {}
                Phase::Closed => freed += held,
                Phase::Leaving => {}
                // It does nothing else.
                _ if connection.is_deciding(state, now) && state.requests == state.deciding => {}
                _ if is_larger || stalled_for >= STALL_TICKS => {
                    candidates.push(EvictionCandidate { connection, state, held, stalled_for });
                }
                _ => {}
            }
        }
        if freed < missing {
            candidates.sort_unstable_by_key(|one| (one.connection.peer.held_bytes(), one.stalled_for));
            let wanted = missing.max(self.max_buffered_bytes / MIN_FREED_DIVISOR);
            while freed < wanted
                && let Some(EvictionCandidate { connection, state, held, .. }) = candidates.pop()
            {
                let has_gone = if connection.is_deciding(state, now) {
                    connection.leave_if(state, now)
                } else {
                    connection.close_if(state)
                };
                if has_gone {
                    self.metrics.out_of_memory.add_one();
                    freed += held;
                }
            }
        }
        if freed < missing {
            requester.peer.last_refusal.store(now, Ordering::Relaxed);
        }
        freed >= missing
    }
}
