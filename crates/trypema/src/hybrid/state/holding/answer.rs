//! What a holding is told, and what it answers.

use crate::clock::Timestamp;
use crate::strategy::Leased;

/// What a call gets of an instance.
#[derive(Debug, Clone, Copy)]
pub enum Taken<O> {
    /// It is decided.
    Decided(Decided<O>),
    /// That depends on when exactly it is.
    Unclear,
    /// The shared count has to be asked.
    Unknown,
}

/// A decision by what is held.
#[derive(Debug, Clone, Copy)]
pub struct Decided<O> {
    /// What was decided.
    pub outcome: O,
    /// The time by the shared clock, about.
    pub now: Timestamp,
    /// Whether it is time to ask for more.
    pub is_low: bool,
}

/// When a lease was asked for and when that was answered, by the clock of the instance.
#[derive(Debug, Clone, Copy)]
pub struct Trip {
    /// Before it was sent.
    pub asked_at: Timestamp,
    /// After it was answered.
    pub answered_at: Timestamp,
}

/// A lease as it was granted.
#[derive(Debug, Clone, Copy)]
pub struct Grant<O> {
    /// The units, and where they are recorded.
    pub leased: Leased<O>,
    /// The time by the shared clock.
    pub now: Timestamp,
    /// How often the key had been reset.
    pub resets: u32,
}

/// What there is to do about a key that nobody calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chore {
    /// Nothing, yet.
    Nothing,
    /// Something is to be given back or told.
    Settle,
    /// It can be forgotten.
    Forget,
}

impl Trip {
    /// What the shared clock is ahead of the instance's, at least: the answer was under way for some time.
    pub(super) fn ahead_us(self, shared_now: Timestamp) -> i64 {
        shared_now.as_micros() as i64 - self.answered_at.as_micros() as i64
    }
}
