//! The state of a connection in one atomic word.

use super::requests::RequestPhase;

/// The phase of a connection. Those in which the client has to do something have a timeout each; the requests that are decided,
/// and the answers that are unread, have [timeouts of their own](RequestPhase).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// No byte has arrived yet.
    New = 0,
    /// No request is under way, and every answer is sent.
    Idle = 1,
    /// The head of a request is arriving, and no other request is under way.
    Head = 2,
    /// The body of at least one request is arriving.
    Body = 3,
    /// There are requests, and all of them have arrived.
    Working = 4,
    /// No request is under way, but the last answers are still in the stream's buffer.
    Answer = 5,
    /// The connection makes room for another one. It is closed after its last decision, and begins no further one.
    Leaving = 6,
    /// The registry closed the connection.
    Closed = 7,
}

/// The phases by their numbers.
const PHASES: [Phase; 8] = [
    Phase::New,
    Phase::Idle,
    Phase::Head,
    Phase::Body,
    Phase::Working,
    Phase::Answer,
    Phase::Leaving,
    Phase::Closed,
];

/// A snapshot of a connection's state: its phase, the tick at which that began, and the number of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// The number of requests that are being decided.
    pub(super) deciding: u8,
    /// The number of requests, whatever they wait for.
    pub(super) requests: u8,
    /// The number of requests that are being read.
    bodies: u8,
    since: u32,
}

impl State {
    pub(super) fn new(now: u32) -> Self {
        Self { phase: Phase::New, deciding: 0, requests: 0, bodies: 0, since: now }
    }

    /// Returns the number of ticks that the phase has lasted.
    pub(super) fn age(self, now: u32) -> u32 {
        now.saturating_sub(self.since)
    }

    /// Whether the connection may begin a request or a decision.
    pub(super) fn is_open(self) -> bool {
        !matches!(self.phase, Phase::Leaving | Phase::Closed)
    }

    /// Whether the client has not sent a complete request, or has none under way.
    pub(super) fn has_no_request(self) -> bool {
        matches!(self.phase, Phase::New | Phase::Idle | Phase::Head | Phase::Body)
            && self.requests == self.bodies
    }

    pub(super) fn in_phase(self, phase: Phase, since: u32) -> Self {
        Self { phase, since, ..self }
    }

    pub(super) fn begin_request(self, now: u32) -> Self {
        let since = if self.phase == Phase::Body { self.since } else { now };
        let (requests, bodies) = (self.requests + 1, self.bodies + 1);
        Self { phase: Phase::Body, requests, bodies, since, ..self }
    }

    /// A request has arrived. The others that are being read get their time anew.
    fn end_body(self, now: u32) -> Self {
        let next = Self { bodies: self.bodies.saturating_sub(1), ..self };
        match (self.is_open(), next.bodies) {
            (false, _) => next,
            (true, 0) => next.in_phase(Phase::Working, now),
            (true, _) => next.in_phase(Phase::Body, now),
        }
    }

    pub(super) fn begin_decision(self) -> Self {
        Self { deciding: self.deciding + 1, ..self }
    }

    pub(super) fn end_phase(self, phase: RequestPhase, now: u32) -> Self {
        match phase {
            RequestPhase::Reading => self.end_body(now),
            RequestPhase::Deciding => Self { deciding: self.deciding.saturating_sub(1), ..self },
            _ => self,
        }
    }

    pub(super) fn end_request(self, after: Phase, now: u32) -> Self {
        let next = Self { requests: self.requests.saturating_sub(1), ..self };
        if next.is_open() && next.requests == 0 { next.in_phase(after, now) } else { next }
    }

    pub(super) fn closed_after_last_decision(self) -> Self {
        if self.phase == Phase::Leaving && self.deciding == 0 {
            return self.in_phase(Phase::Closed, 0);
        }
        self
    }
}

impl From<State> for u64 {
    fn from(state: State) -> Self {
        let State { phase, deciding, requests, bodies, since } = state;
        let [a, b, c, d] = since.to_le_bytes();
        Self::from_le_bytes([phase as u8, deciding, requests, bodies, a, b, c, d])
    }
}

impl From<u64> for State {
    fn from(word: u64) -> Self {
        let [phase, deciding, requests, bodies, a, b, c, d] = word.to_le_bytes();
        let phase = PHASES.get(usize::from(phase)).copied().unwrap_or(Phase::Closed);
        Self { phase, deciding, requests, bodies, since: u32::from_le_bytes([a, b, c, d]) }
    }
}
