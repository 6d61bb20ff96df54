//! Tables of reservations: where that of a check is, what it decides, and how the decision is written.

use std::time::Duration;

use super::limit_of_table;
use crate::check::Check;
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionTime};
use crate::error::TrypemaError;
use crate::local::map::{HashedKey, NewState, StateMap};
use crate::local::shard::Shard;
use crate::low_level::LockGuard;
use crate::reservation::{ReserveRequest, ReservedCheck};
use crate::strategy::reservations::{Entry, EntryState, ReservationTable, ReserveAttempt};
use crate::strategy::{Concurrency, ConcurrencyLimit, Origin, Recorded, Strategy};

/// The location of the table of a check.
pub(super) struct TableLocation<'p> {
    pub(super) map: &'p StateMap<Concurrency>,
    pub(super) shard: usize,
    pub(super) key: HashedKey<'p>,
}

/// A check of a reservation, and what its table and its counter have decided so far.
pub(super) struct TableCheck<'p> {
    pub(super) check: &'p Check<'p>,
    pub(super) location: TableLocation<'p>,
    pub(super) state: TableDecision,
    pub(super) decision: Decision,
    /// Where the counter recorded the units.
    pub(super) recorded: Recorded,
    /// The units that it recorded.
    pub(super) units: u64,
}

/// Identifies a shard among all maps. Shards are locked in its order.
type ShardAddress = (*const StateMap<Concurrency>, usize);

/// A locked shard of tables.
pub(super) struct LockedTables<'p> {
    address: ShardAddress,
    shard: LockGuard<'p, Shard<Concurrency>>,
}

/// The state of a check of a reservation before the counters are asked.
///
/// The counter of a concurrency limit is its table, which is locked. So its usage is read here, and never from
/// the limiter, which would wait for the lock forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TableDecision {
    /// An earlier request made the reservation. For a concurrency limit, with its usage.
    Known(KnownReservation, Option<Decision>),
    /// The id is that of another request.
    Conflict,
    /// The attempt was undone before it arrived.
    Undone,
    /// The table has no room. For a concurrency limit, with its usage.
    Full(Option<Decision>),
    /// The counter has to decide.
    Open,
    /// A concurrency limit has decided.
    Decided(Decision),
}

/// The entry of an earlier request with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnownReservation {
    expires_at: Timestamp,
    is_settled: bool,
}

impl TableDecision {
    /// Returns the error that fails the request, if there is one.
    pub(super) fn error(self) -> Option<TrypemaError> {
        match self {
            Self::Conflict => Some(TrypemaError::ReservationConflict),
            Self::Undone => Some(TrypemaError::ReservationUndone),
            Self::Known(..) | Self::Full(_) | Self::Open | Self::Decided(_) => None,
        }
    }
}

impl<'p> TableLocation<'p> {
    fn shard_address(&self) -> ShardAddress {
        (std::ptr::from_ref(self.map), self.shard)
    }

    pub(super) fn lock(&self) -> LockedTables<'p> {
        LockedTables { address: self.shard_address(), shard: self.map.shard_at(self.shard) }
    }
}

impl<'p> TableCheck<'p> {
    pub(super) fn new(check: &'p Check<'p>, location: TableLocation<'p>) -> Self {
        let recorded = Recorded { at: Timestamp::default(), origin: Origin::default() };
        let (state, decision) = (TableDecision::Open, Decision::refused());
        Self { check, location, state, decision, recorded, units: 0 }
    }

    /// Locks the shards of all tables, in the order of map and shard.
    pub(super) fn lock_all(checks: &[Self]) -> Vec<LockedTables<'p>> {
        let mut order: Vec<&TableLocation<'p>> = checks.iter().map(|one| &one.location).collect();
        order.sort_unstable_by_key(|location| location.shard_address());
        order.dedup_by_key(|location| location.shard_address());
        order.into_iter().map(TableLocation::lock).collect()
    }

    /// Returns the locked shard of the table. Every check has one.
    pub(super) fn shard_in<'s>(&self, locked: &'s mut [LockedTables<'_>]) -> &'s mut Shard<Concurrency> {
        let address = self.location.shard_address();
        let index = locked.iter().position(|one| one.address == address).unwrap_or_default();
        &mut locked[index].shard
    }

    /// Returns as much of the decision as the table can make. Makes room for a table that is missing.
    pub(super) fn decide(
        &self,
        shard: &mut Shard<Concurrency>,
        now: Timestamp,
        request: &ReserveRequest<'_>,
    ) -> TableDecision {
        let TableLocation { map, key, .. } = &self.location;
        let name = request.name;
        if let Some(table) = shard.find(key.hash, &key.key) {
            if table.is_undone(request.attempt(), now) {
                return TableDecision::Undone;
            }
            return match table.find(name.id, now) {
                Some(known) if known.request == name.request => {
                    let (expires_at, is_settled) = (known.expires_at, known.state == EntryState::Settled);
                    TableDecision::Known(KnownReservation { expires_at, is_settled }, self.usage(table, now))
                }
                Some(_) => TableDecision::Conflict,
                None => self.decide_new(table, now),
            };
        }
        if !map.try_reserve(shard, now) {
            return TableDecision::Full(self.usage(&ReservationTable::default(), now));
        }
        self.decide_new(&ReservationTable::default(), now)
    }

    fn decide_new(&self, table: &ReservationTable, now: Timestamp) -> TableDecision {
        match self.check.limit.held() {
            Some(limit) => TableDecision::Decided(decide_concurrency(limit, table, self.check, now)),
            None if table.has_room(now) => TableDecision::Open,
            None => TableDecision::Full(None),
        }
    }

    /// Returns the usage of a concurrency limit that would have admitted the check of a denied request.
    pub(super) fn unheld(&self, shard: &mut Shard<Concurrency>, now: Timestamp) -> Option<Decision> {
        let TableDecision::Decided(decision) = self.state else { return None };
        let key = &self.location.key;
        match shard.find(key.hash, &key.key) {
            _ if !decision.is_allowed() => None,
            Some(table) => self.usage(table, now),
            None => self.usage(&ReservationTable::default(), now),
        }
    }

    /// Returns the usage of a concurrency limit.
    fn usage(&self, table: &ReservationTable, now: Timestamp) -> Option<Decision> {
        let check = Check { cost: 0, ..*self.check };
        self.check.limit.held().map(|limit| decide_concurrency(limit, table, &check, now))
    }

    /// Writes the entry of an admitted check, and gives back the room for a table that was not needed. Returns
    /// the part of the reservation at this counter, if there is one.
    pub(super) fn write(
        &self,
        shard: &mut Shard<Concurrency>,
        now: Timestamp,
        entry: Option<Entry>,
    ) -> Option<ReservedCheck> {
        if let TableDecision::Known(KnownReservation { expires_at, is_settled }, _) = self.state {
            let TableLocation { key, .. } = &self.location;
            if let (Some(Entry { id, attempt, .. }), Some(table)) = (entry, shard.find(key.hash, &key.key)) {
                table.confirm(ReserveAttempt { id, number: attempt }, now);
            }
            let expires_in = duration_between(now, expires_at);
            return Some(ReservedCheck::known(expires_in, is_settled));
        }
        let limit = limit_of_table(self.check);
        let hold_us = limit.hold().as_micros() as u64;
        // A denial changes nothing, except that a concurrency limit that denies repairs its table.
        let is_denying = matches!(self.state, TableDecision::Decided(decision) if !decision.is_allowed());
        let is_repairing = entry.is_some() || is_denying;
        let entry = entry.filter(|_| self.check.is_reservable());
        let write = |table: &mut ReservationTable| {
            if is_repairing && table.is_stepped_back(now, hold_us) {
                table.step_back(now, hold_us);
            }
            let entry = entry?;
            table.forget_expired(now);
            table.insert(entry);
            let expires_in = duration_between(now, entry.expires_at);
            Some(ReservedCheck::made(expires_in))
        };
        let TableLocation { map, key, .. } = &self.location;
        if let Some(table) = shard.find(key.hash, &key.key) {
            return write(table);
        }
        if matches!(self.state, TableDecision::Full(_)) {
            return None;
        }
        let mut table = ReservationTable::default();
        let reserved = write(&mut table);
        map.insert_reserved(shard, key, NewState { state: table, limit: &limit, now });
        reserved
    }
}

fn decide_concurrency(
    limit: &ConcurrencyLimit,
    table: &ReservationTable,
    check: &Check<'_>,
    now: Timestamp,
) -> Decision {
    let outcome = Concurrency::decide(limit, table, check.spend().at(now));
    Concurrency::core(&Concurrency::decision(limit, outcome, DecisionTime::exactly(now)))
}

pub(super) fn duration_between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_micros(to.as_micros().saturating_sub(from.as_micros()))
}
