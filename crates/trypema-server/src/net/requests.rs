//! The requests of one connection, as the registry sees them: what each waits for, and for how long.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of requests of one connection at a time, whatever they wait for: decisions, answers that the client has not read,
/// streams, and decisions whose client has gone.
pub(super) const MAX_REQUESTS: usize = 64;

/// The event that a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RequestPhase {
    /// Its body is arriving. Nothing is decided yet. The time for this is [that of the connection](super::state::Phase::Body).
    Reading = 1,
    /// The server is deciding. The registry spares such a connection, because the client must learn whether units were spent.
    Deciding = 2,
    /// The client has not read the whole answer.
    Unread = 3,
    /// The answer is a stream, whose next part does not exist yet. This has no timeout.
    Streaming = 4,
    /// The client has not read a part of a stream.
    UnreadPart = 5,
    /// A part of a stream is in the connection's buffer, and so read once the buffer is written.
    BufferedPart = 6,
}

/// The phases by their numbers.
const PHASES: [RequestPhase; 6] = [
    RequestPhase::Reading,
    RequestPhase::Deciding,
    RequestPhase::Unread,
    RequestPhase::Streaming,
    RequestPhase::UnreadPart,
    RequestPhase::BufferedPart,
];

/// A snapshot of a request's state.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestState {
    pub(super) phase: RequestPhase,
    since: u32,
}

impl RequestState {
    /// Returns the number of ticks that the phase has lasted.
    pub(super) fn age(self, now: u32) -> u32 {
        now.saturating_sub(self.since)
    }

    fn of(word: u64) -> Option<Self> {
        let phase = *PHASES.get(usize::try_from(word & 0xff).ok()?.checked_sub(1)?)?;
        Some(Self { phase, since: u32::try_from(word >> 32).unwrap_or(u32::MAX) })
    }
}

/// The requests of one connection. HTTP/1.1 has one at a time, so the places of others are allocated for the first connection that
/// has two.
#[derive(Debug, Default)]
pub(super) struct Requests {
    first: AtomicU64,
    others: OnceLock<Box<[AtomicU64; MAX_REQUESTS - 1]>>,
}

const FREE: u64 = 0;

fn word(phase: RequestPhase, since: u32) -> u64 {
    u64::from(since) << 32 | phase as u64
}

impl Requests {
    /// Begins a request. Returns its place, or `None` if there are too many.
    pub(super) fn begin(&self, now: u32) -> Option<usize> {
        let begun = word(RequestPhase::Reading, now);
        let takes = |place: &AtomicU64| {
            place.load(Ordering::Relaxed) == FREE
                && place.compare_exchange(FREE, begun, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        if takes(&self.first) {
            return Some(0);
        }
        let others = self.others.get_or_init(|| Box::new([const { AtomicU64::new(FREE) }; MAX_REQUESTS - 1]));
        others.iter().position(takes).map(|index| index + 1)
    }

    /// Enters another phase, and returns the previous one.
    pub(super) fn enter(&self, place: usize, phase: RequestPhase, now: u32) -> RequestPhase {
        self.exchange(place, word(phase, now))
    }

    /// Ends a request, and returns its last phase.
    pub(super) fn end(&self, place: usize) -> RequestPhase {
        self.exchange(place, FREE)
    }

    /// Returns the phase of a request that has not ended.
    pub(super) fn phase(&self, place: usize) -> RequestPhase {
        let state = self.place(place).and_then(|place| RequestState::of(place.load(Ordering::Acquire)));
        state.map_or(RequestPhase::Unread, |state| state.phase)
    }

    fn exchange(&self, place: usize, next: u64) -> RequestPhase {
        // Only the owner of a place changes it, so it is not free.
        let previous =
            self.place(place).and_then(|place| RequestState::of(place.swap(next, Ordering::AcqRel)));
        previous.map_or(RequestPhase::Unread, |state| state.phase)
    }

    fn place(&self, place: usize) -> Option<&AtomicU64> {
        match place.checked_sub(1) {
            None => Some(&self.first),
            Some(index) => self.others.get()?.get(index),
        }
    }

    /// Everything in the connection's buffer has been written.
    pub(super) fn written(&self, now: u32) {
        for place in self.places() {
            let seen = place.load(Ordering::Acquire);
            if RequestState::of(seen).is_some_and(|state| state.phase == RequestPhase::BufferedPart) {
                let next = word(RequestPhase::Streaming, now);
                let _ = place.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Returns the state of each request.
    pub(super) fn all(&self) -> impl Iterator<Item = RequestState> {
        self.places().filter_map(|place| RequestState::of(place.load(Ordering::Acquire)))
    }

    fn places(&self) -> impl Iterator<Item = &AtomicU64> {
        let others = self.others.get().into_iter().flat_map(|others| others.iter());
        std::iter::once(&self.first).chain(others)
    }
}
