//! Closes connections to make room for others.

use std::cmp::Reverse;
use std::time::Duration;

use super::connection::Connection;
use super::memory::STALL_TICKS;
use super::registry::{ConnectionTable, TICK};
use super::requests::RequestPhase;
use super::state::{Phase, State};

/// The number of connections that are compared to choose the one to evict. The longest idle of these is idle long enough, and
/// comparing ten thousand for every new connection would itself allow an attack.
const EVICTION_SAMPLE: usize = 64;
/// The time for which a decision protects its connection: longer than a change of rules in PostgreSQL waits for a session, a
/// read, the writes and the COMMIT, which is 50 s in total. A decision that takes longer may be interrupted for another client.
const PROTECTED: Duration = Duration::from_secs(60);
pub(super) const PROTECTED_TICKS: u32 = (PROTECTED.as_millis() / TICK.as_millis()) as u32;
/// Connections whose held memory differs by less are equal to the choice of the one to evict.
const BYTES_PER_RANK: u64 = 64 * 1024;

/// The rank of a connection among those that may be evicted. The highest is evicted first.
type EvictionRank = (u8, u64, u32, Reverse<u64>);

impl Connection {
    /// Whether a decision protects the connection. One that has taken longer than [`PROTECTED`] does not.
    pub(super) fn is_deciding(&self, seen: State, now: u32) -> bool {
        if seen.deciding == 0 {
            return false;
        }
        let is_late = |request: &super::requests::RequestState| {
            request.phase == RequestPhase::Deciding && request.age(now) >= PROTECTED_TICKS
        };
        // A decision that begins now may not be among the requests yet.
        self.requests.all().filter(is_late).count() < usize::from(seen.deciding)
    }

    /// Returns the eviction rank of this connection in the state `seen`, or `None` if it must not be evicted. The registry first evicts
    /// connections without a complete request, then those whose client does not read its answers and those whose decision hangs,
    /// then idle ones. Within a rank, it evicts the one that holds most memory without progress, then the one that has waited longest,
    /// then the oldest.
    pub(super) fn eviction_rank(&self, seen: State, now: u32) -> Option<EvictionRank> {
        let rank = match seen.phase {
            Phase::New | Phase::Head => 2,
            Phase::Body if seen.has_no_request() => 2,
            Phase::Answer if seen.age(now) >= STALL_TICKS => 1,
            Phase::Idle => 0,
            Phase::Body | Phase::Working if !self.is_in_use(seen, now) => 1,
            Phase::Body | Phase::Working | Phase::Answer | Phase::Leaving | Phase::Closed => return None,
        };
        let is_stalled = self.stalled_for(now) >= STALL_TICKS;
        let stalled_bytes = if is_stalled { self.held_bytes() } else { 0 };
        Some((rank, stalled_bytes / BYTES_PER_RANK, self.waited(seen, now), Reverse(self.sequence)))
    }

    /// Whether a request is decided in time, or its client reads the answer.
    fn is_in_use(&self, seen: State, now: u32) -> bool {
        let is_read = self.requests.all().any(|request| match request.phase {
            RequestPhase::Streaming => true,
            RequestPhase::Unread | RequestPhase::UnreadPart | RequestPhase::BufferedPart => {
                request.age(now) < STALL_TICKS
            }
            RequestPhase::Reading | RequestPhase::Deciding => false,
        });
        is_read || self.is_deciding(seen, now)
    }

    /// Returns the ticks for which the connection, or the oldest of its requests, has waited.
    fn waited(&self, seen: State, now: u32) -> u32 {
        let oldest = self.requests.all().map(|request| request.age(now)).max();
        oldest.unwrap_or(0).max(seen.age(now))
    }
}

impl ConnectionTable {
    /// Evicts the connection with the highest eviction rank of a sample. Returns whether it evicted one.
    pub(super) fn evict_one(&mut self, now: u32) -> bool {
        let count = self.slots.len();
        // A sample may contain no connection that can be evicted. Then the next sample is tried, until all were.
        for _ in 0..count.div_ceil(EVICTION_SAMPLE) {
            let start = self.eviction_cursor;
            self.eviction_cursor = (start + EVICTION_SAMPLE) % count;
            let sample = (start..start + EVICTION_SAMPLE.min(count))
                .filter_map(|index| self.slots[index % count].as_ref());
            let evictable = sample.filter_map(|connection| {
                let state = connection.state();
                Some((connection.eviction_rank(state, now)?, connection, state))
            });
            if let Some((_, connection, state)) = evictable.max_by_key(|(eviction_rank, ..)| *eviction_rank)
                && connection.close_if(state)
            {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use trypema::http::AddressKey;

    use super::super::peer::Peer;
    use super::*;

    fn connection(sequence: u64, now: u32) -> Connection {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        Connection::new(address, Arc::new(Peer::new(AddressKey::of(address.ip()))), sequence, now)
    }

    fn rank(connection: &Connection, now: u32) -> Option<EvictionRank> {
        connection.eviction_rank(connection.state(), now)
    }

    #[test]
    fn connections_in_use_are_evicted_last() {
        let now = 2 * STALL_TICKS;
        let new = |sequence, age| rank(&connection(sequence, now - age), now);
        let head = |sequence, age| {
            let connection = connection(sequence, 0);
            connection.begin_head(now - age);
            rank(&connection, now)
        };
        let after_request = |sequence, phase, age| {
            let connection = connection(sequence, 0);
            let place = connection.begin_request(0).unwrap();
            connection.end_request(place, phase, now - age);
            rank(&connection, now)
        };
        assert_eq!(after_request(1, Phase::Answer, STALL_TICKS - 1), None);
        let unread = after_request(1, Phase::Answer, STALL_TICKS);
        assert!(new(9, 1) > unread, "first those without a request");
        assert!(unread > after_request(1, Phase::Idle, now), "then those that do not read the response");
        assert!(after_request(2, Phase::Idle, 9) > after_request(1, Phase::Idle, 1), "then the longest idle");
        assert!(new(1, 9) > head(2, 9), "then the oldest");
        let holder = connection(2, now);
        holder.hold(BYTES_PER_RANK, now);
        assert!(rank(&holder, now) < new(1, 9), "memory that makes progress does not count");
        let stalled = connection(2, now - STALL_TICKS);
        stalled.hold(BYTES_PER_RANK, now - STALL_TICKS);
        assert!(rank(&stalled, now) > new(1, now), "stalled memory counts more than age");
    }

    #[test]
    fn a_decision_protects_for_a_time() {
        let connection = connection(1, 0);
        let place = connection.begin_request(0).unwrap();
        connection.begin_decision(place, 0).unwrap();
        assert_eq!(rank(&connection, PROTECTED_TICKS - 1), None);
        assert!(rank(&connection, PROTECTED_TICKS).is_some());
        let second = connection.begin_request(PROTECTED_TICKS).unwrap();
        connection.begin_decision(second, PROTECTED_TICKS).unwrap();
        assert_eq!(rank(&connection, PROTECTED_TICKS), None, "the second one is young");
    }

    #[test]
    fn a_stream_that_is_read_protects_and_an_unread_one_does_not() {
        let connection = connection(1, 0);
        let place = connection.begin_request(0).unwrap();
        connection.begin_answer(place, RequestPhase::Streaming, 0);
        assert_eq!(rank(&connection, 100_000), None);
        connection.requests.enter(place, RequestPhase::UnreadPart, 100_000);
        assert_eq!(rank(&connection, 100_000), None);
        assert!(rank(&connection, 100_000 + STALL_TICKS).is_some());
    }
}
