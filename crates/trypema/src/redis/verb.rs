//! The verbs of the scripts, with a row for each.
//!
//! A request to the driver script begins with
//! `<B strategy> <B number> <I2 place of the state in KEYS> <I4 callers> <d cost> <d time>`, and then has the arguments of
//! its verb. (+ 32 to the number: postpaid; + 64: a debit. Callers are more than 1 only for takes that share a reply.) The
//! reply begins with `<B 1> <d number>`. `outcome` is what the strategy's twin writes, after `<I4 callers that it is for>`.
//!
//! | verb | cost | time, in µs | arguments | number of the reply, and what follows |
//! | --- | --- | --- | --- | --- |
//! | `TAKE` | units | | limit | 0, outcome |
//! | `PEEK` | units | | limit | 0, outcome |
//! | `UP_TO` | units | | limit | units that were taken, outcome |
//! | `TAKE_WITH_RECEIPT` | units | for how long they may be spent | limit | resets of the key, origin, outcome |
//! | `REFUND` | units | at which they were recorded | limit, origin, `<I4 resets at the take>` | units refunded |
//! | `REFUND_UNITS` | units | | limit | units refunded |
//! | `RESET` | | | | 1 if there was a state |
//! | `ADOPT` | | | limit | 1 if the key is live |
//! | `BLOCK` | 0: short, 1: long | for how long | | 1 |
//! | `UNBLOCK` | | | | 1 if the key was blocked |
//! | `DENIED_ELSEWHERE` | units | | limit | 0, outcome |
//! | `LEASE` | units that a call waits for | length of the lease | limit, [`LeaseArgs`] | units granted, `<I4 instances> <I4 resets>`, origin, outcome |
//! | `HEARTBEAT` | | for how long the instance is live, or 0 | `<c8 instance>` | live instances |
//! | `RESERVE` | units | for how long | name, limit | see `decide_hold` in the script; `<d expires at>` and outcome |
//! | `SETTLE` | units | for how long an undone attempt is remembered | name, limit | 0 to 3; `<d reserved> <d counted> <d refunded> <d would have expired at>` |
//! | `RENEW` | | for how long | name, limit | 1 if it is known; `<d would have expired at> <d expires at>` |
//! | `HOLDERS` | | | name, limit | how many; entries of `reservations.lua` |
//!
//! An origin is `<d end of the window> <I4 count>` (`strategy/origin.rs`), and a name is
//! `<c16 id> <c8 digest of the request> <c8 attempt> <B how it ends> <I2 bytes of the limit>` ([`ReservationArgs`]).
//!
//! [`LeaseArgs`]: super::lease::LeaseArgs
//! [`ReservationArgs`]: super::protocol::ReservationArgs

use Helper::{Instances, Reservations, Resets};
use ReplyLayout::{Bytes, Decision, Entries};

use super::key::{instances_name, reservations_name, resets_name};
use crate::strategy::Effect;

/// What the protocol and the scripts have to know of a verb.
#[derive(Debug)]
pub(crate) struct VerbRow {
    /// The name of its constant in the scripts.
    pub(crate) name: &'static str,
    pub(crate) number: u8,
    /// The Redis keys that it uses beside the state, in this order.
    pub(crate) helpers: &'static [Helper],
    /// Whether requests have a limit.
    pub(crate) has_limit: bool,
    pub(crate) reply: ReplyLayout,
}

/// A Redis key beside a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Helper {
    /// The number of times that the state was reset.
    Resets,
    /// The live instances that lease units of the state.
    Instances,
    /// The table of reservations beside a counter. A concurrency limit has none: its state is a table itself.
    Reservations,
}

/// What follows the number in the reply of a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyLayout {
    /// Nothing.
    Number,
    /// `before` bytes, and the outcome of a decision for one or more callers, which begins with `in_front` more bytes.
    Decision { before: usize, in_front: usize },
    /// One part of so many bytes.
    Bytes(usize),
    /// As many entries of a table of reservations as the number says.
    Entries,
}

/// The bytes of an origin.
const ORIGIN: usize = 8 + 4;

/// Added to the number of a verb whose cost is spent as far as one unit is free, and whatever is free.
pub(crate) const POSTPAID: u8 = 32;
pub(crate) const DEBIT: u8 = 64;

/// How a reservation ends: at a cost (0), at its estimate, or because the attempt that made it is undone.
pub(crate) const AT_ESTIMATE: u8 = 1;
pub(crate) const AT_UNDOING: u8 = 2;
/// Added to that if the settlement is remembered although the caller did not choose the id.
pub(crate) const REMEMBERED: u8 = 8;

impl VerbRow {
    const fn new(name: &'static str, number: u8) -> Self {
        Self { name, number, helpers: &[], has_limit: true, reply: ReplyLayout::Number }
    }

    const fn deciding(self) -> Self {
        self.replying(ReplyLayout::Decision { before: 0, in_front: 0 })
    }

    const fn replying(self, reply: ReplyLayout) -> Self {
        Self { reply, ..self }
    }

    const fn using(self, helpers: &'static [Helper]) -> Self {
        Self { helpers, ..self }
    }

    const fn without_limit(self) -> Self {
        Self { has_limit: false, ..self }
    }

    /// Whether the reply has a decision of the strategy.
    pub(crate) fn is_deciding(&self) -> bool {
        matches!(self.reply, Decision { .. })
    }

    /// Whether its requests are about the table of reservations beside a counter, and name a reservation.
    pub(crate) fn is_of_table(&self) -> bool {
        self.helpers == [Helper::Reservations]
    }
}

impl Effect {
    /// Returns the verb that decides with this effect.
    pub(crate) fn verb(self) -> &'static VerbRow {
        match self {
            Self::Take => TAKE,
            Self::Peek => PEEK,
            Self::DeniedElsewhere => DENIED_ELSEWHERE,
        }
    }
}

impl Helper {
    /// Returns the name in Redis for the state of this name.
    pub(super) fn name(self, state: &[u8]) -> Vec<u8> {
        match self {
            Self::Resets => resets_name(state),
            Self::Instances => instances_name(state),
            Self::Reservations => reservations_name(state),
        }
    }
}

pub(crate) const TAKE: &VerbRow = &VerbRow::new("TAKE", 1).deciding();
pub(crate) const PEEK: &VerbRow = &VerbRow::new("PEEK", 2).deciding();
/// Takes as much of the cost as fits.
pub(crate) const UP_TO: &VerbRow = &VerbRow::new("UP_TO", 3).deciding();
pub(crate) const TAKE_WITH_RECEIPT: &VerbRow =
    &VerbRow::new("TAKE_WITH_RECEIPT", 4).replying(Decision { before: ORIGIN, in_front: 0 }).using(&[Resets]);
/// Refunds the units of a receipt, once. Its mark is a further helper.
pub(crate) const REFUND: &VerbRow = &VerbRow::new("REFUND", 5).using(&[Resets]);
/// Refunds units without a receipt, oldest first.
pub(crate) const REFUND_UNITS: &VerbRow = &VerbRow::new("REFUND_UNITS", 6);
pub(crate) const RESET: &VerbRow = &VerbRow::new("RESET", 7).without_limit().using(&[Resets, Reservations]);
/// Replaces the limit that is stored with a live state.
pub(crate) const ADOPT: &VerbRow = &VerbRow::new("ADOPT", 8);
pub(crate) const BLOCK: &VerbRow = &VerbRow::new("BLOCK", 9).without_limit();
pub(crate) const UNBLOCK: &VerbRow =
    &VerbRow::new("UNBLOCK", 10).without_limit().using(&[Resets, Reservations]);
/// Decides without spending. Records the observation or denial that the strategy counts when another check denies the
/// request.
pub(crate) const DENIED_ELSEWHERE: &VerbRow = &VerbRow::new("DENIED_ELSEWHERE", 11).deciding();
/// Takes units that only this instance will spend.
pub(crate) const LEASE: &VerbRow = &VerbRow::new("LEASE", 12)
    .replying(Decision { before: 4 + 4 + ORIGIN, in_front: 0 })
    .using(&[Resets, Instances]);
/// Announces that an instance is live, or leaves. It has no strategy and no state.
pub(crate) const HEARTBEAT: &VerbRow = &VerbRow::new("HEARTBEAT", 13).without_limit();
/// Takes the cost under the id of a reservation, all or nothing with the other checks of its request.
pub(crate) const RESERVE: &VerbRow =
    &VerbRow::new("RESERVE", 14).replying(Decision { before: 0, in_front: 8 }).using(&[Reservations]);
/// Ends a reservation, with the cost as the units that were really spent.
pub(crate) const SETTLE: &VerbRow = &VerbRow::new("SETTLE", 15).replying(Bytes(4 * 8)).using(&[Reservations]);
/// Lets a reservation last longer.
pub(crate) const RENEW: &VerbRow = &VerbRow::new("RENEW", 16).replying(Bytes(2 * 8)).using(&[Reservations]);
/// Lists the reservations of a counter.
pub(crate) const HOLDERS: &VerbRow = &VerbRow::new("HOLDERS", 17).replying(Entries).using(&[Reservations]);

/// All rows, for the constants of the scripts.
pub(crate) const ROWS: [&VerbRow; 17] = [
    TAKE,
    PEEK,
    UP_TO,
    TAKE_WITH_RECEIPT,
    REFUND,
    REFUND_UNITS,
    RESET,
    ADOPT,
    BLOCK,
    UNBLOCK,
    DENIED_ELSEWHERE,
    LEASE,
    HEARTBEAT,
    RESERVE,
    SETTLE,
    RENEW,
    HOLDERS,
];
