//! Closes connections that exceed a timeout.

use std::time::Duration;

use super::connection::Connection;
use super::eviction::PROTECTED_TICKS;
use super::registry::{Registry, TICK};
use super::requests::RequestPhase;
use super::state::Phase;
use crate::settings::Values;

/// The timeout of a decision. Every wait inside a decision has a much shorter bound; this one guards against a bug.
const DECISION_TIMEOUT: Duration = Duration::from_secs(120);

/// The timeout of each phase, in ticks.
#[derive(Debug)]
pub(super) struct Timeouts {
    idle: u32,
    head: u32,
    /// Also of an answer, and of a part of a stream, that the client does not read.
    body: u32,
    decision: u32,
}

impl Timeouts {
    pub(super) fn of(values: &Values) -> Self {
        let ticks =
            |time: Duration| u32::try_from(time.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX).max(1);
        Self {
            idle: ticks(values.idle_timeout.0),
            head: ticks(values.header_timeout.0),
            body: ticks(values.request_timeout.0),
            decision: ticks(DECISION_TIMEOUT),
        }
    }

    /// Returns the number of requests whose client does not read the answer, or `None` if a decision is late.
    fn unread(&self, connection: &Connection, now: u32) -> Option<usize> {
        let mut unread = 0;
        for request in connection.requests.all() {
            match request.phase {
                RequestPhase::Deciding if request.age(now) > self.decision => return None,
                RequestPhase::Unread | RequestPhase::UnreadPart | RequestPhase::BufferedPart => {
                    unread += usize::from(request.age(now) > self.body);
                }
                RequestPhase::Reading | RequestPhase::Deciding | RequestPhase::Streaming => {}
            }
        }
        Some(unread)
    }
}

impl Registry {
    /// Closes the connections that have exceeded a timeout. If only some answers of a connection are not read, it finishes its other
    /// requests first, and begins none.
    pub(super) fn close_timed_out(&self, now: u32) {
        let timeouts = &self.timeouts;
        for connection in self.lock_table().connections() {
            let state = connection.state();
            let timeout = match state.phase {
                Phase::New | Phase::Idle => timeouts.idle,
                Phase::Head => timeouts.head,
                Phase::Body | Phase::Answer => timeouts.body,
                Phase::Leaving => PROTECTED_TICKS,
                Phase::Working => u32::MAX,
                Phase::Closed => continue,
            };
            let mut is_late = state.age(now) > timeout;
            if !is_late && state.requests > 0 {
                match timeouts.unread(connection, now) {
                    Some(0) => {}
                    Some(unread) if unread < usize::from(state.requests) => connection.finish(),
                    _ => is_late = true,
                }
            }
            if is_late && connection.close_if(state) {
                self.metrics.timed_out.add_one();
            }
        }
    }

    /// Closes the connections whose client has not sent a complete request.
    pub(crate) fn close_without_request(&self) {
        for connection in self.lock_table().connections() {
            let state = connection.state();
            if state.has_no_request() {
                connection.close_if(state);
            }
        }
    }
}
