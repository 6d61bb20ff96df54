//! One memory budget for all connections: request bodies that are arriving, and responses that clients have
//! not read yet.
//!
//! A connection reserves memory before it allocates. When the budget is exhausted, the server closes
//! connections to make room:
//!
//! - connections of peers that hold more than the requesting peer would hold, and
//! - connections of any peer that have made no progress for [`STALLED`].
//!
//! The last sixteenth of the budget is reserved for peers that hold less than a sixteenth, so that they
//! find room immediately.
//!
//! So no peer can close the connections of a peer that holds less and makes progress: an attacker, which
//! holds the most, can only lose connections. A connection whose request is being decided is never closed to
//! make room, because the client must learn whether units were spent. If nothing can be closed, the server
//! refuses the request that needs room.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::connection::{Connection, Phase, State};
use super::registry::{Place, Registry, TICK};

/// The size up to which a body or a response is not accounted for. Nearly every check is smaller, and its
/// connection has buffers of this size anyway.
pub(crate) const UNACCOUNTED_BYTES: usize = 4 * 1024;
/// The time without a byte read or written after which a connection that holds memory can be closed for any
/// other.
pub(super) const STALLED: Duration = Duration::from_secs(2);
/// [`STALLED`] in ticks.
pub(super) const STALLED_TICKS: u32 = (STALLED.as_millis() / TICK.as_millis()) as u32;
/// The divisor of the smallest part of the budget that is freed at a time, so that the registry seldom
/// scans all connections.
const FREED_PART: u64 = 16;
/// The divisor of the part of the budget that is reserved for peers which hold less than that part. Their
/// requests find room without waiting for other connections to close.
const KEPT_PART: u64 = 16;
/// The time that a request waits for closed connections to release their memory.
const PATIENCE: Duration = Duration::from_millis(100);
/// The time that a crowded peer waits for a refusal. Without it, each of its connections would send the
/// next large body at once, hundreds of times a second.
const REFUSAL_DELAY: Duration = Duration::from_secs(1);
/// The interval at which a waiting request checks the budget again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A part of the memory budget. Dropping it releases the memory.
#[derive(Debug)]
pub(crate) struct Reservation {
    registry: Arc<Registry>,
    connection: Arc<Connection>,
    bytes: u64,
}

/// A connection that may be closed to make room.
struct Candidate<'c> {
    connection: &'c Arc<Connection>,
    state: State,
    held: u64,
    stalled_for: u32,
}

impl Reservation {
    /// Grows the reservation to `bytes`. Returns whether there was room. A reservation never shrinks.
    pub(crate) async fn grow_to(&mut self, bytes: usize) -> bool {
        let more = (bytes as u64).saturating_sub(self.bytes);
        let has_room = self.registry.reserve(&self.connection, more).await;
        self.bytes += if has_room { more } else { 0 };
        has_room
    }

    /// Converts the reserved memory into that of a response of `bytes`, which stays accounted for until the
    /// client has read it.
    pub(crate) fn become_answer(mut self, bytes: usize) {
        let bytes = bytes as u64;
        if bytes > self.bytes {
            self.registry.take(&self.connection, bytes - self.bytes);
        } else {
            self.registry.release(&self.connection, self.bytes - bytes);
        }
        self.connection.add_unread(bytes);
        // The connection owns the memory from now on.
        self.bytes = 0;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.registry.release(&self.connection, self.bytes);
    }
}

impl Place {
    /// Reserves memory for a body, or for a response that is about to be written. Returns `None` if there
    /// is no room.
    pub(crate) async fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let (registry, connection) = (Arc::clone(&self.registry), Arc::clone(&self.connection));
        let mut reservation = Reservation { registry, connection, bytes: 0 };
        reservation.grow_to(bytes).await.then_some(reservation)
    }

    /// Accounts for a response until the client has read it. Returns whether there is room.
    pub(crate) async fn hold_answer(&self, bytes: usize) -> bool {
        let has_room = self.registry.reserve(&self.connection, bytes as u64).await;
        if has_room {
            self.connection.add_unread(bytes as u64);
        }
        has_room
    }

    /// Accounts for a response that must be sent, even if it exceeds the budget.
    pub(crate) fn hold_answer_anyway(&self, bytes: usize) {
        self.registry.take(&self.connection, bytes as u64);
        self.connection.add_unread(bytes as u64);
    }

    /// Releases the memory of all responses. The caller has written every byte of them.
    pub(super) fn release_answers(&self) {
        self.registry.release(&self.connection, self.connection.take_unread());
    }

    /// Records that bytes were read or written.
    pub(super) fn note_progress(&self) {
        if self.connection.held() > 0 {
            self.connection.note_progress(self.registry.now());
        }
    }
}

impl Registry {
    async fn reserve(&self, connection: &Connection, bytes: u64) -> bool {
        if bytes == 0 || self.try_take(connection, bytes) {
            return true;
        }
        for _ in 0..PATIENCE.as_millis() / LOOK_AGAIN.as_millis() {
            if !self.make_memory(connection, bytes) {
                break;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            if self.try_take(connection, bytes) {
                return true;
            }
        }
        self.metrics.memory_refusals.add_one();
        if self.memory_notice.claim(self.now()) {
            let (limit, held) = (self.max_buffered, self.metrics.buffered_bytes.load(Ordering::Relaxed));
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

    fn try_take(&self, connection: &Connection, bytes: u64) -> bool {
        let limit = self.limit_of(connection, bytes);
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= limit);
        let buffered = &self.metrics.buffered_bytes;
        let is_taken = buffered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if is_taken {
            connection.hold(bytes, self.now());
        }
        is_taken
    }

    /// Returns the part of the budget that this peer may fill.
    fn limit_of(&self, connection: &Connection, bytes: u64) -> u64 {
        let kept = self.max_buffered / KEPT_PART;
        if self.is_small(connection, bytes) { self.max_buffered } else { self.max_buffered - kept }
    }

    /// Whether the peer would hold at most a sixteenth of the budget with `bytes` more.
    fn is_small(&self, connection: &Connection, bytes: u64) -> bool {
        connection.usage.held().saturating_add(bytes) <= self.max_buffered / KEPT_PART
    }

    fn take(&self, connection: &Connection, bytes: u64) {
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
    /// have ended.
    fn make_memory(&self, asking: &Connection, bytes: u64) -> bool {
        let now = self.now();
        // At most one failed scan per peer and tick: otherwise an attacker could have the server scan
        // thousands of connections for every request.
        if asking.usage.refused_at.load(Ordering::Relaxed) == now {
            return false;
        }
        let used = self.metrics.buffered_bytes.load(Ordering::Relaxed);
        let missing = used.saturating_add(bytes).saturating_sub(self.limit_of(asking, bytes));
        let share = asking.usage.held().saturating_add(bytes);
        let all = self.all();
        let mut freed = 0;
        let mut candidates = Vec::new();
        for connection in all.connections().filter(|other| !std::ptr::eq(&***other, asking)) {
            let (held, state) = (connection.held(), connection.state());
            let stalled_for = connection.stalled_for(now);
            let is_larger = connection.usage.key != asking.usage.key && connection.usage.held() > share;
            match state.phase() {
                _ if held == 0 => {}
                Phase::Ended => freed += held,
                Phase::Busy => {}
                _ if is_larger || stalled_for >= STALLED_TICKS => {
                    candidates.push(Candidate { connection, state, held, stalled_for });
                }
                _ => {}
            }
        }
        if freed < missing {
            candidates.sort_unstable_by_key(|one| (one.connection.usage.held(), one.stalled_for));
            let wanted = missing.max(self.max_buffered / FREED_PART);
            while freed < wanted
                && let Some(Candidate { connection, state, held, .. }) = candidates.pop()
            {
                if connection.end(state) {
                    self.metrics.out_of_memory.add_one();
                    freed += held;
                }
            }
        }
        if freed < missing {
            asking.usage.refused_at.store(now, Ordering::Relaxed);
        }
        freed >= missing
    }
}
