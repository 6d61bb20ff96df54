//! Reservations inside this process.
//!
//! A table of reservations stands beside each counter: in the map of the concurrency limiter for limits of
//! that strategy, and for each other strategy in a map beside that of its counters. The shards of the tables are locked first, in the
//! order of map and shard, and stay locked while the counters are locked and changed. So a reservation is at
//! all of its counters or at none, and nobody can settle it in between.

use std::time::Duration;

use super::lock::LockGuard;
use super::map::{HashedKey, NewState, StateMap};
use super::multi::HasLocalLimiter;
use super::provider::LocalRateLimiterProvider;
use super::shard::Shard;
use crate::check::{Check, TakeResponse, validate};
use crate::clock::Timestamp;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::reservation::{
    Ending, HeldReservation, RenewRequest, RenewedCheck, ReservationName, ReserveRequest, ReserveResponse,
    ReservedCheck, SettleRequest, SettleStatus, SettledCheck,
};
use crate::strategy::reservations::{Entry, MAX_HOLD, ReservationTable};
use crate::strategy::{
    Concurrency, ConcurrencyLimit, Limit, Payment, RETRY_AFTER, Spend, Strategy, with_strategy,
};
use crate::units::MAX_EXACT;

/// The location of the table of a check.
struct TableLocation<'p> {
    /// The index of the check.
    index: usize,
    map: &'p StateMap<Concurrency>,
    shard: usize,
    key: HashedKey<'p>,
}

/// Tells the shards of all maps apart. Its order is that in which they are locked.
type ShardAddress = (*const StateMap<Concurrency>, usize);

/// A locked shard of tables.
struct LockedShard<'p> {
    address: ShardAddress,
    shard: LockGuard<'p, Shard<Concurrency>>,
}

/// The state of a check of a reservation before the counters are asked.
///
/// The counter of a concurrency limit is its table, which is locked. So its usage is read here, and never from
/// the limiter, which would wait for the lock forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableDecision {
    /// The reservation is known, and expires at this time. With the units left, as of a concurrency limit.
    Known(Timestamp, Option<Decision>),
    /// The id is that of another request.
    Conflict,
    /// The table has no room. With the units left, as of a concurrency limit.
    Full(Option<Decision>),
    /// The counter has to decide.
    Open,
    /// A concurrency limit has decided.
    Decided(Decision),
}

impl TableLocation<'_> {
    fn shard_address(&self) -> ShardAddress {
        (std::ptr::from_ref(self.map), self.shard)
    }
}

impl LocalRateLimiterProvider {
    pub(super) fn reserve_by_name(
        &self,
        request: ReserveRequest<'_>,
    ) -> Result<ReserveResponse, TrypemaError> {
        validate(request.take.checks)?;
        let mut response = self.reserve_group(request.take.checks, request)?;
        for check in request.take.independent {
            let mut reserved = self.reserve_group(std::slice::from_ref(check), request);
            let part = reserved.as_mut().ok().and_then(|reserved| reserved.receipts.pop()).flatten();
            response.independent_receipts.push(part);
            response.independent.push(match reserved {
                // A rule that decides nothing does not fail a request either.
                Err(TrypemaError::ReservationConflict) => Ok(Decision::refused()),
                reserved => reserved.map(|reserved| reserved.decisions[0].unwrap_or(Decision::refused())),
            });
        }
        Ok(response)
    }

    /// Reserves all of `checks` or none.
    fn reserve_group(
        &self,
        checks: &[Check<'_>],
        request: ReserveRequest<'_>,
    ) -> Result<ReserveResponse, TrypemaError> {
        let locations: Vec<TableLocation<'_>> =
            checks.iter().enumerate().map(|(index, check)| self.locate_table(index, check)).collect();
        let mut shards = lock_all(&locations);
        let now = self.now();
        let mut states: Vec<TableDecision> = Vec::with_capacity(checks.len());
        for (check, location) in checks.iter().zip(&locations) {
            let shard = shard_of(&mut shards, location);
            states.push(decide_table(check, location, shard, now, request.name));
        }
        // From here on, tables that were made for this request have to be inserted or released.
        let decided = match states.contains(&TableDecision::Conflict) {
            true => Err(TrypemaError::ReservationConflict),
            false => self.decide_counters(checks, &states, now),
        };
        let is_allowed = decided.as_ref().is_ok_and(|decided| decided.iter().all(|one| one.0.is_allowed()));
        let mut response = TakeResponse::empty();
        for (check, location) in checks.iter().zip(&locations) {
            let state = states[location.index];
            let shard = shard_of(&mut shards, location);
            let entry = decided.as_ref().ok().filter(|_| is_allowed).map(|decided| Entry {
                id: request.name.id,
                request: request.name.request,
                units: check.cost.min(MAX_EXACT),
                recorded: decided[location.index].1,
                expires_at: expiry(now, request.ttl),
                is_settled: false,
            });
            response.receipts.push(write_table(check, location, shard, now, state, entry));
        }
        response.decisions = decided?.into_iter().map(|(decision, _)| Some(decision)).collect();
        Ok(response.without_unspent_receipts())
    }

    /// Takes the cost of every counter that has to decide, or of none. Returns each decision, with the time at
    /// which the counter recorded the units.
    fn decide_counters(
        &self,
        checks: &[Check<'_>],
        states: &[TableDecision],
        now: Timestamp,
    ) -> Result<Vec<(Decision, Timestamp)>, TrypemaError> {
        let is_open = |state: &TableDecision| *state == TableDecision::Open;
        if states.iter().all(is_open) {
            // Nearly every request: all counters decide.
            return self.take_counters(checks, now);
        }
        let is_denied = states.iter().any(|state| match state {
            TableDecision::Full(_) => true,
            TableDecision::Decided(decision) => !decision.is_allowed(),
            _ => false,
        });
        let open: Vec<Check<'_>> =
            checks.iter().zip(states).filter(|(_, state)| is_open(state)).map(|(check, _)| *check).collect();
        let mut opened: Vec<(Decision, Timestamp)> = match is_denied {
            true => open
                .iter()
                .map(|check| Ok((self.record_denied_elsewhere(check)?, now)))
                .collect::<Result<_, TrypemaError>>()?,
            false => self.take_counters(&open, now)?,
        };
        let mut opened = opened.drain(..);
        let decision = |(check, state): (&Check<'_>, &TableDecision)| match state {
            TableDecision::Decided(decision) => (*decision, now),
            TableDecision::Full(usage) => {
                (without_room(usage.unwrap_or_else(|| self.usage(check)), now), now)
            }
            TableDecision::Open => opened.next().unwrap_or((Decision::refused(), now)),
            TableDecision::Known(_, usage) => (usage.unwrap_or_else(|| self.usage(check)), now),
            // A conflict fails the request before this is called.
            TableDecision::Conflict => (Decision::refused(), now),
        };
        Ok(checks.iter().zip(states).map(decision).collect())
    }

    /// Takes all of `checks`, or none. Returns each decision, with the time at which the counter recorded the
    /// units.
    fn take_counters(
        &self,
        checks: &[Check<'_>],
        now: Timestamp,
    ) -> Result<Vec<(Decision, Timestamp)>, TrypemaError> {
        let taken = self.reserve_all(checks)?;
        let recorded = |index: usize| taken.receipts.get(index).copied().flatten();
        let recorded = |index| recorded(index).map_or(now, |receipt| receipt.recorded_at());
        Ok(taken.decisions.iter().enumerate().map(|(index, one)| (*one, recorded(index))).collect())
    }

    /// Returns the units of a counter that are left, as an allowed decision. Not for concurrency limits: their
    /// counters are the tables, whose shards are locked.
    fn usage(&self, check: &Check<'_>) -> Decision {
        let spend = Spend { cost: 0, payment: Payment::Debit };
        with_strategy!(check.limit, |S, limit| {
            S::core(&HasLocalLimiter::<S>::limiter(self).peek_at(check.key, limit, spend).decision(limit))
        })
    }

    pub(super) fn settle(&self, settlement: &SettleRequest<'_>) -> SettledCheck {
        let SettleRequest { check, id, ending } = settlement;
        let (location, now) = (self.locate_table(0, check), self.now());
        let mut shard = location.map.shard_at(location.shard);
        let Some(table) = shard.find(location.key.hash, &location.key.key) else {
            return SettledCheck::default();
        };
        let Some(entry) = table.find(*id, now).copied() else { return SettledCheck::default() };
        if entry.is_settled {
            return SettledCheck { status: SettleStatus::SettledBefore, ..SettledCheck::default() };
        }
        let reserved = entry.units;
        let counted = if *ending == Ending::Estimate { reserved } else { check.cost };
        let refunded = match check.limit {
            Limit::Concurrency(_) => reserved,
            _ => self.count_difference(check, &entry, counted),
        };
        let expires_in = duration_between(now, entry.expires_at);
        table.forget_expired(now);
        match ending {
            Ending::Undone => table.forget(*id),
            Ending::Cost | Ending::Estimate => table.settle(*id, counted),
        }
        SettledCheck { status: SettleStatus::Settled, reserved, counted, refunded, expires_in }
    }

    /// Refunds the units that were reserved and not spent, or counts those that were spent beyond it. Returns
    /// the units refunded.
    fn count_difference(&self, check: &Check<'_>, entry: &Entry, counted: u64) -> u64 {
        if counted > entry.units {
            self.debit_one(&Check { cost: counted - entry.units, ..*check });
        }
        let unspent = entry.units.saturating_sub(counted);
        if unspent == 0 {
            return 0;
        }
        with_strategy!(check.limit, |S, limit| {
            HasLocalLimiter::<S>::limiter(self).refund_recorded(check.key, limit, unspent, entry.recorded)
        })
    }

    pub(super) fn renew(&self, renewal: &RenewRequest<'_>) -> Option<RenewedCheck> {
        let RenewRequest { check, id, ttl } = renewal;
        let (location, now) = (self.locate_table(0, check), self.now());
        let mut shard = location.map.shard_at(location.shard);
        let table = shard.find(location.key.hash, &location.key.key)?;
        let entry = table.find(*id, now).filter(|entry| !entry.is_settled)?;
        let was_left = duration_between(now, entry.expires_at);
        table.renew(*id, expiry(now, *ttl));
        Some(RenewedCheck { was_left, expires_in: *ttl })
    }

    pub(super) fn holders_of(&self, check: &Check<'_>) -> Vec<HeldReservation> {
        let (location, now) = (self.locate_table(0, check), self.now());
        let mut shard = location.map.shard_at(location.shard);
        let Some(table) = shard.find(location.key.hash, &location.key.key) else { return Vec::new() };
        table.holders(now).map(|entry| HeldReservation::new(entry, now)).collect()
    }

    /// Forgets a counter and its reservations. Returns whether there were any.
    pub(super) fn reset_with_reservations(&self, check: &Check<'_>) -> bool {
        let location = self.locate_table(0, check);
        let mut shard = location.map.shard_at(location.shard);
        // A table from which everything was released is as good as none.
        let table = shard.find(location.key.hash, &location.key.key);
        let had_table = table.is_some_and(|table| !table.is_empty());
        location.map.remove(&mut shard, &location.key);
        let had_state = match check.limit {
            Limit::Concurrency(_) => false,
            limit => with_strategy!(limit, |S, _limit| HasLocalLimiter::<S>::limiter(self).reset(check.key)),
        };
        had_table || had_state
    }

    fn locate_table<'p>(&'p self, index: usize, check: &Check<'p>) -> TableLocation<'p> {
        let map = match check.limit {
            Limit::Concurrency(_) => &self.concurrency().map,
            limit => with_strategy!(limit, |S, _limit| HasLocalLimiter::<S>::limiter(self).tables()),
        };
        let key = map.hash_key(check.key);
        TableLocation { index, map, shard: map.shard_index(key.hash), key }
    }
}

/// Locks the shards of all tables, in the order of map and shard.
fn lock_all<'p>(locations: &[TableLocation<'p>]) -> Vec<LockedShard<'p>> {
    let lock = |location: &TableLocation<'p>| LockedShard {
        address: location.shard_address(),
        shard: location.map.shard_at(location.shard),
    };
    if let [only] = locations {
        return vec![lock(only)];
    }
    let mut order: Vec<&TableLocation<'p>> = locations.iter().collect();
    order.sort_unstable_by_key(|location| location.shard_address());
    order.dedup_by_key(|location| location.shard_address());
    order.into_iter().map(lock).collect()
}

/// Returns the locked shard of a table. Every location has one.
fn shard_of<'s>(
    shards: &'s mut [LockedShard<'_>],
    location: &TableLocation<'_>,
) -> &'s mut Shard<Concurrency> {
    let is_its = |locked: &LockedShard<'_>| locked.address == location.shard_address();
    let index = shards.iter().position(is_its).unwrap_or_default();
    &mut shards[index].shard
}

/// Decides as much of a check as its table can. Makes room for a table that is missing.
fn decide_table(
    check: &Check<'_>,
    location: &TableLocation<'_>,
    shard: &mut Shard<Concurrency>,
    now: Timestamp,
    name: ReservationName,
) -> TableDecision {
    let decide = |table: &ReservationTable| match check.limit {
        Limit::Concurrency(limit) => TableDecision::Decided(decide_concurrency(limit, table, check, now)),
        _ if table.has_room(now) => TableDecision::Open,
        _ => TableDecision::Full(None),
    };
    let usage = |table: &ReservationTable| match check.limit {
        Limit::Concurrency(limit) => {
            Some(decide_concurrency(limit, table, &Check { cost: 0, ..*check }, now))
        }
        _ => None,
    };
    if let Some(table) = shard.find(location.key.hash, &location.key.key) {
        return match table.find(name.id, now) {
            Some(known) if known.request == name.request => {
                TableDecision::Known(known.expires_at, usage(table))
            }
            Some(_) => TableDecision::Conflict,
            None => decide(table),
        };
    }
    location.map.sweep(shard, now);
    if !location.map.try_reserve(shard, now) {
        return TableDecision::Full(usage(&ReservationTable::default()));
    }
    decide(&ReservationTable::default())
}

fn decide_concurrency(
    limit: &ConcurrencyLimit,
    table: &ReservationTable,
    check: &Check<'_>,
    now: Timestamp,
) -> Decision {
    let outcome = Concurrency::decide(limit, table, check.spend().at(now));
    let decided_at = crate::decision::DecisionTime::exactly(now);
    Concurrency::core(&Concurrency::decision(limit, outcome, decided_at))
}

/// Writes the entry of an admitted check, and gives back the room for a table that was not needed. Returns the
/// part of the reservation at this counter, if there is one.
fn write_table(
    check: &Check<'_>,
    location: &TableLocation<'_>,
    shard: &mut Shard<Concurrency>,
    now: Timestamp,
    state: TableDecision,
    entry: Option<Entry>,
) -> Option<ReservedCheck> {
    if let TableDecision::Known(expires_at, _) = state {
        let expires_in = duration_between(now, expires_at);
        return Some(ReservedCheck { expires_in, is_known: true });
    }
    let (limit, hold_us) = match check.limit {
        Limit::Concurrency(limit) => (*limit, limit.hold().as_micros() as u64),
        _ => (ConcurrencyLimit::of_table(), MAX_HOLD.as_micros() as u64),
    };
    // A denial changes nothing, except that a concurrency limit that denies repairs its table.
    let is_denying = matches!(state, TableDecision::Decided(decision) if !decision.is_allowed());
    let is_repairing = entry.is_some() || is_denying;
    let entry = entry.filter(|_| check.is_reservable());
    let write = |table: &mut ReservationTable| {
        if is_repairing && table.is_stepped_back(now, hold_us) {
            table.step_back(now, hold_us);
        }
        let entry = entry?;
        table.forget_expired(now);
        table.insert(entry);
        let expires_in = duration_between(now, entry.expires_at);
        Some(ReservedCheck { expires_in, is_known: false })
    };
    if let Some(table) = shard.find(location.key.hash, &location.key.key) {
        return write(table);
    }
    if matches!(state, TableDecision::Full(_)) {
        return None;
    }
    let mut table = ReservationTable::default();
    let reserved = write(&mut table);
    location.map.insert_reserved(shard, &location.key, NewState { state: table, limit: &limit, now });
    reserved
}

/// Returns the time at which a reservation expires, which may be later than any that a clock can show.
fn expiry(now: Timestamp, ttl: Duration) -> Timestamp {
    Timestamp::derived(now.as_micros() + ttl.as_micros() as u64)
}

/// Returns the decision of a counter whose table of reservations has no room.
pub(crate) fn without_room(usage: Decision, now: Timestamp) -> Decision {
    let not_before = now + RETRY_AFTER;
    Decision { is_allowed: false, not_before, resets_at: usage.resets_at.max(not_before), ..usage }
}

fn duration_between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_micros(to.as_micros().saturating_sub(from.as_micros()))
}
