//! Reservations of several checks: requests to a provider, and its responses.
//!
//! A provider keeps a table of reservations beside each counter (`strategy/reservations.rs`). A reservation is
//! an entry with the same id in the table of each counter that it took units from.

use std::time::Duration;

use crate::check::{Check, TakeRequest, TakeResponse};
use crate::clock::Timestamp;
use crate::error::TrypemaError;
use crate::strategy::RecordedUnits;
use crate::strategy::reservations::{Entry, ReservationId, ReserveAttempt};

/// Takes the checks of a request like [`TakeRequest`], under a name.
#[derive(Clone, Copy)]
pub(crate) struct ReserveRequest<'a> {
    pub(crate) take: TakeRequest<'a>,
    pub(crate) name: ReservationName,
    /// The number of this attempt: see [`ReserveAttempt`].
    pub(crate) attempt: u64,
    /// The units are the holder's for this long.
    pub(crate) ttl: Duration,
    /// Whether the units are counted even if they do not fit: this process has admitted them without the store.
    #[cfg_attr(not(feature = "_redis"), allow(dead_code, reason = "counters in this process never fail"))]
    pub(crate) is_debit: bool,
}

impl ReserveRequest<'_> {
    pub(crate) fn attempt(&self) -> ReserveAttempt {
        ReserveAttempt { id: self.name.id, number: self.attempt }
    }
}

/// The name of a reservation, with a digest of the request that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReservationName {
    pub(crate) id: ReservationId,
    pub(crate) request: u64,
}

/// The part of a reservation at one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReservedCheck {
    pub(crate) expires_in: Duration,
    /// Whether an earlier request with the same id made it. This one spent nothing.
    pub(crate) is_known: bool,
    /// Whether it has been settled or released since, so that it holds nothing.
    pub(crate) is_ended: bool,
    /// The units that the counters of this process recorded, if it keeps the reservation because the store was
    /// unreachable.
    pub(crate) kept_here: Option<RecordedUnits>,
}

impl ReservedCheck {
    /// Returns a part that was reserved in the store.
    pub(crate) fn made(expires_in: Duration) -> Self {
        Self { expires_in, is_known: false, is_ended: false, kept_here: None }
    }

    /// Returns a part that an earlier request had reserved in the store.
    pub(crate) fn known(expires_in: Duration, is_ended: bool) -> Self {
        Self { is_known: true, is_ended, ..Self::made(expires_in) }
    }

    /// Returns a part that this process keeps.
    pub(crate) fn kept_here(expires_in: Duration, charged: RecordedUnits) -> Self {
        Self { kept_here: Some(charged), ..Self::made(expires_in) }
    }
}

/// The results of a [`ReserveRequest`].
pub(crate) type ReserveResponse = TakeResponse<ReservedCheck>;

/// Settles the part of a reservation at one counter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SettleRequest<'a> {
    /// The counter, and the units that were really spent as its cost.
    pub(crate) check: Check<'a>,
    pub(crate) id: ReservationId,
    pub(crate) ending: Ending,
    /// Whether the settlement is remembered although the caller did not choose the id: a process that keeps the
    /// reservation may still bring it to the store.
    pub(crate) is_remembered: bool,
}

/// The end of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The cost was really spent.
    Cost,
    /// The reserved units count as the ones that were spent.
    Estimate,
    /// The attempt with this number was denied or failed elsewhere, or its answer was lost. Its units are given back,
    /// unless another attempt holds them, too. Unlike a release it is not remembered, even if the caller chose the
    /// id: the same request may be made again, and spends then.
    Undone {
        attempt: u64,
        /// The time for which the store remembers the attempt, because it may still arrive. Zero if it was answered.
        marked_for: Duration,
    },
}

impl<'a> SettleRequest<'a> {
    /// Gives back the units of an attempt, as if it had never been made.
    pub(crate) fn undo(check: Check<'a>, attempt: ReserveAttempt, marked_for: Duration) -> Self {
        let ending = Ending::Undone { attempt: attempt.number, marked_for };
        Self { check: Check { cost: 0, ..check }, id: attempt.id, ending, is_remembered: false }
    }

    /// Counts all units, and releases a slot.
    pub(crate) fn at_estimate(check: Check<'a>, id: ReservationId) -> Self {
        Self { check: Check { cost: 0, ..check }, id, ending: Ending::Estimate, is_remembered: false }
    }
}

/// The result of a [`SettleRequest`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SettledCheck {
    pub(crate) status: SettleStatus,
    /// The units that were reserved.
    pub(crate) reserved: u64,
    /// The units that were really spent.
    pub(crate) counted: u64,
    /// The reserved units that were refunded, because they still counted.
    pub(crate) refunded: u64,
    /// The time after which the reservation would have expired at this counter.
    pub(crate) expires_in: Duration,
}

/// Whether a counter knew the reservation that was to be settled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum SettleStatus {
    /// It does not: the reservation expired, or was settled or released, or was never made here.
    #[default]
    Unknown,
    Settled,
    /// It was settled or released before, which is only remembered of ids that the caller chose.
    SettledBefore,
    /// The table has no room to remember an undone attempt, which may still arrive.
    NoRoom,
}

/// Lets the part of a reservation at one counter last longer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RenewRequest<'a> {
    pub(crate) check: Check<'a>,
    pub(crate) id: ReservationId,
    pub(crate) ttl: Duration,
}

/// A reservation that was renewed at one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RenewedCheck {
    /// The time after which the reservation would have expired.
    pub(crate) was_left: Duration,
    pub(crate) expires_in: Duration,
}

/// Lists the reservations of a counter that are neither settled nor expired.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HoldersRequest<'a> {
    pub(crate) check: Check<'a>,
}

/// The result of renewing at one counter; `None` if the counter does not know the reservation.
pub(crate) type RenewResult = Result<Option<RenewedCheck>, TrypemaError>;

/// The result of settling at one counter, or the failure of its store.
pub(crate) type SettleResult = Result<SettledCheck, TrypemaError>;

/// A reservation that a counter holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldReservation {
    pub(crate) id: ReservationId,
    pub(crate) units: u64,
    /// The time since the units were recorded.
    pub(crate) age: Duration,
    pub(crate) expires_in: Duration,
}

impl HeldReservation {
    pub(crate) fn new(entry: &Entry, now: Timestamp) -> Self {
        let between = |from: Timestamp, to: Timestamp| {
            Duration::from_micros(to.as_micros().saturating_sub(from.as_micros()))
        };
        let (age, expires_in) = (between(entry.recorded, now), between(now, entry.expires_at));
        Self { id: entry.id, units: entry.units, age, expires_in }
    }
}
