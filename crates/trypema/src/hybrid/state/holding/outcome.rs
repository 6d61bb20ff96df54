//! The inputs and results of a holding.

use crate::clock::Timestamp;

/// The result of a take.
#[derive(Debug, Clone, Copy)]
pub enum LocalDecision<O> {
    /// The instance decided the call.
    Decided(LeaseDecision<O>),
    /// Redis has to decide.
    NeedsRedis,
}

/// A decision of the instance.
#[derive(Debug, Clone, Copy)]
pub struct LeaseDecision<O> {
    /// The outcome.
    pub outcome: O,
    /// The approximate time by the clock of Redis.
    pub now: Timestamp,
    /// Whether more units are to be requested.
    pub is_low: bool,
}

/// The times of a lease request and its reply, by the instance's clock.
#[derive(Debug, Clone, Copy)]
pub struct RequestTiming {
    /// A time before the request was sent.
    pub requested_at: Timestamp,
    /// A time after the reply arrived.
    pub replied_at: Timestamp,
}

/// The maintenance that a key needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maintenance {
    /// No maintenance yet.
    Nothing,
    /// Units are to be returned to Redis, or calls to be reported.
    Return,
    /// The key can be removed.
    Remove,
}

impl RequestTiming {
    /// Returns a lower bound for the lead of Redis's clock over the instance's. The actual lead is larger
    /// by the time that the reply took.
    pub(super) fn ahead_us(self, shared_now: Timestamp) -> i64 {
        shared_now.as_micros() as i64 - self.replied_at.as_micros() as i64
    }
}
