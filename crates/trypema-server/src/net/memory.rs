//! One memory budget for all connections: request bodies that are arriving, and answers that clients have not read yet.
//!
//! A connection reserves memory before it allocates. When the budget is exhausted, connections are closed to make room:
//!
//! - those of a peer that holds more than the peer which needs room would hold, and
//! - those that have made no progress for [`STALLED`], whichever peer they belong to.
//!
//! The last sixteenth is kept for peers that hold less than that, so that they find room at once.
//!
//! So a peer never closes the connections of one that holds less and makes progress: an attacker, which holds the most, only ever
//! gives way. A request that is being decided is not closed, as what it spent must be told. If nothing can be closed, the request that
//! needs room is refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::connection::{Connection, Phase, State};
use super::registry::{Place, Registry, TICK};

/// Bytes of a body or an answer that are not accounted for: nearly every check is smaller, and its connection has buffers of this size
/// anyway.
pub(crate) const UNACCOUNTED_BYTES: usize = 4 * 1024;
/// After this long without a byte read or written, a connection that holds memory gives way to any other.
pub(super) const STALLED: Duration = Duration::from_secs(2);
/// The same in ticks.
pub(super) const STALLED_TICKS: u32 = (STALLED.as_millis() / TICK.as_millis()) as u32;
/// At least this part of the budget is freed at once, so that connections are seldom looked over.
const FREED_PART: u64 = 16;
/// This part of the budget is kept for peers that hold less than it: their requests find room at once, and need not wait until
/// somebody else's connections are closed.
const KEPT_PART: u64 = 16;
/// How long a request waits for connections that were closed to release what they hold.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long a crowded peer waits for a refusal: its connections would otherwise send the next large body at once, each of them
/// hundreds of times a second.
const REFUSAL_DELAY: Duration = Duration::from_secs(1);
/// How often it looks.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A part of the memory budget, until it is dropped.
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
    /// Makes it `bytes` large; whether there is room for that. It never shrinks.
    pub(crate) async fn grow_to(&mut self, bytes: usize) -> bool {
        let more = (bytes as u64).saturating_sub(self.bytes);
        let has_room = self.registry.reserve(&self.connection, more).await;
        self.bytes += if has_room { more } else { 0 };
        has_room
    }

    /// Accounts for an answer of this size, which was made in the reserved memory, until the client has read it.
    pub(crate) fn become_answer(mut self, bytes: usize) {
        let bytes = bytes as u64;
        if bytes > self.bytes {
            self.registry.take(&self.connection, bytes - self.bytes);
        } else {
            self.registry.release(&self.connection, self.bytes - bytes);
        }
        self.connection.add_unread(bytes);
        // It belongs to the connection from now on.
        self.bytes = 0;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.registry.release(&self.connection, self.bytes);
    }
}

impl Place {
    /// Reserves memory for a body, or for an answer that is about to be made; `None` if there is no room.
    pub(crate) async fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let (registry, connection) = (Arc::clone(&self.registry), Arc::clone(&self.connection));
        let mut reservation = Reservation { registry, connection, bytes: 0 };
        reservation.grow_to(bytes).await.then_some(reservation)
    }

    /// Accounts for an answer until the client has read it; whether there is room.
    pub(crate) async fn hold_answer(&self, bytes: usize) -> bool {
        let has_room = self.registry.reserve(&self.connection, bytes as u64).await;
        if has_room {
            self.connection.add_unread(bytes as u64);
        }
        has_room
    }

    /// The same for an answer that has to be sent: whether there is room or not.
    pub(crate) fn hold_answer_anyway(&self, bytes: usize) {
        self.registry.take(&self.connection, bytes as u64);
        self.connection.add_unread(bytes as u64);
    }

    /// Everything was written: no answer is held any more.
    pub(super) fn release_answers(&self) {
        self.registry.release(&self.connection, self.connection.take_unread());
    }

    /// Notes that bytes were read or written.
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
                limit,
                held,
                "max_buffered_bytes is exhausted by request bodies and unread answers; refusing requests with 503"
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

    /// The part of the budget that a peer may fill.
    fn limit_of(&self, connection: &Connection, bytes: u64) -> u64 {
        let kept = self.max_buffered / KEPT_PART;
        if self.is_small(connection, bytes) { self.max_buffered } else { self.max_buffered - kept }
    }

    /// Whether a peer holds little, also with `bytes` more.
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

    /// Closes connections so that `bytes` more fit; whether they will once these have ended.
    fn make_memory(&self, asking: &Connection, bytes: u64) -> bool {
        let now = self.now();
        // Looking over thousands of connections in vain for every request of an attacker would be an attack by itself.
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
