//! Reservations inside this process.
//!
//! The counter of a concurrency limit is a table of reservations. For every other strategy, a map of tables
//! stands beside the map of counters. The shards of the tables are locked first, in the order of map and
//! shard, and stay locked while the counters are locked and changed. So a reservation is at all of its
//! counters or at none, and nobody can settle it in between.

use std::slice;
use std::time::Duration;

use super::limiter::RecordedUnits;
use super::lock::LockGuard;
use super::map::{HashedKey, NewState, StateMap};
use super::multi::{HasLocalLimiter, TakeOptions};
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
    map: &'p StateMap<Concurrency>,
    shard: usize,
    key: HashedKey<'p>,
}

/// A check of a reservation, and what its table and its counter have decided so far.
struct TableCheck<'p> {
    check: &'p Check<'p>,
    location: TableLocation<'p>,
    state: TableDecision,
    decision: Decision,
    /// The time at which the counter recorded the units.
    recorded: Timestamp,
    /// The units that it recorded.
    units: u64,
}

/// Identifies a shard among all maps. Shards are locked in its order.
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
    /// An earlier request made the reservation. For a concurrency limit, with its usage.
    Known(KnownReservation, Option<Decision>),
    /// The id is that of another request.
    Conflict,
    /// The table has no room. For a concurrency limit, with its usage.
    Full(Option<Decision>),
    /// The counter has to decide.
    Open,
    /// A concurrency limit has decided.
    Decided(Decision),
}

/// The entry of an earlier request with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KnownReservation {
    expires_at: Timestamp,
    is_settled: bool,
}

impl<'p> TableLocation<'p> {
    fn shard_address(&self) -> ShardAddress {
        (std::ptr::from_ref(self.map), self.shard)
    }

    fn lock(&self) -> LockedShard<'p> {
        LockedShard { address: self.shard_address(), shard: self.map.shard_at(self.shard) }
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
            let mut reserved = self.reserve_group(slice::from_ref(check), request);
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
        let started = self.observed_from();
        let reserved = self.reserve_unobserved(checks, request)?;
        let decisions = reserved.decisions.iter().flatten();
        self.notify_decisions(started, checks.iter().zip(decisions));
        Ok(reserved)
    }

    fn reserve_unobserved(
        &self,
        checks: &[Check<'_>],
        request: ReserveRequest<'_>,
    ) -> Result<ReserveResponse, TrypemaError> {
        if let [check] = checks {
            // Nearly every request. It needs no lists.
            let mut check = self.table_check(check);
            let mut shard = check.location.lock();
            return self.reserve_locked(slice::from_mut(&mut check), slice::from_mut(&mut shard), request);
        }
        let mut checks: Vec<TableCheck<'_>> = checks.iter().map(|check| self.table_check(check)).collect();
        let mut shards = lock_all(&checks);
        self.reserve_locked(&mut checks, &mut shards, request)
    }

    /// Reserves all of `checks` or none. The shards of their tables are locked, so the observer is notified later.
    fn reserve_locked(
        &self,
        checks: &mut [TableCheck<'_>],
        shards: &mut [LockedShard<'_>],
        request: ReserveRequest<'_>,
    ) -> Result<ReserveResponse, TrypemaError> {
        let now = self.now();
        for one in checks.iter() {
            let shard = shard_of(shards, &one.location);
            if shard.find(one.location.key.hash, &one.location.key.key).is_none() {
                // Only before the first decision: a table that is forgotten after that could not be written as
                // it was decided.
                one.location.map.sweep(shard, now);
            }
        }
        for one in checks.iter_mut() {
            let shard = shard_of(shards, &one.location);
            one.state = decide_table(one.check, &one.location, shard, now, request.name);
            (one.recorded, one.units) = (now, one.check.cost.min(MAX_EXACT));
        }
        // From here on, tables that were made for this request have to be inserted or released.
        let is_conflict = checks.iter().any(|one| one.state == TableDecision::Conflict);
        if !is_conflict {
            self.decide_counters(checks, now);
        }
        let is_allowed = !is_conflict && checks.iter().all(|one| one.decision.is_allowed());
        let mut receipts = Vec::with_capacity(checks.len());
        for one in checks.iter() {
            let shard = shard_of(shards, &one.location);
            let entry = is_allowed.then(|| Entry {
                id: request.name.id,
                request: request.name.request,
                units: one.units,
                recorded: one.recorded,
                expires_at: expiry(now, request.ttl),
                is_settled: false,
            });
            receipts.push(write_table(one.check, &one.location, shard, now, one.state, entry));
        }
        if is_conflict {
            return Err(TrypemaError::ReservationConflict);
        }
        let decisions = checks.iter().map(|one| Some(one.decision)).collect();
        Ok(TakeResponse { receipts, ..TakeResponse::of_decisions(decisions) }.without_unspent_receipts())
    }

    /// Takes the cost of every counter that has to decide, or of none.
    fn decide_counters(&self, checks: &mut [TableCheck<'_>], now: Timestamp) {
        let is_denied = checks.iter().any(|one| match one.state {
            TableDecision::Full(_) => true,
            TableDecision::Decided(decision) => !decision.is_allowed(),
            _ => false,
        });
        if !is_denied {
            self.take_counters(checks);
        }
        for one in checks {
            let check = one.check;
            one.decision = match one.state {
                TableDecision::Open if is_denied => self.deny_elsewhere(check),
                TableDecision::Open => continue,
                TableDecision::Decided(decision) => decision,
                TableDecision::Full(usage) => without_room(usage.unwrap_or_else(|| self.usage(check)), now),
                TableDecision::Known(_, usage) => usage.unwrap_or_else(|| self.usage(check)),
                // A conflict fails the request before this is called.
                TableDecision::Conflict => Decision::refused(),
            };
        }
    }

    /// Takes the cost of all counters that have to decide, or of none.
    fn take_counters(&self, checks: &mut [TableCheck<'_>]) {
        if let [one] = checks {
            if one.state == TableDecision::Open {
                let (decision, recorded) = self.spend_recorded(one.check);
                one.decision = decision;
                if let Some(RecordedUnits { at, units }) = recorded {
                    (one.recorded, one.units) = (at, units);
                }
            }
            return;
        }
        let is_open = |one: &TableCheck<'_>| one.state == TableDecision::Open;
        let open: Vec<Check<'_>> = checks.iter().filter(|one| is_open(one)).map(|one| *one.check).collect();
        let options = TakeOptions { with_receipts: true, ..TakeOptions::default() };
        let taken = self.take_many(&open, options);
        let mut receipts = taken.receipts.iter();
        for (one, decision) in checks.iter_mut().filter(|one| is_open(one)).zip(taken.decisions) {
            one.decision = decision;
            if let Some(Some(receipt)) = receipts.next() {
                (one.recorded, one.units) = (receipt.recorded_at(), receipt.units());
            }
        }
    }

    /// Takes the cost of one counter. Returns the decision, and the units that were recorded.
    fn spend_recorded(&self, check: &Check<'_>) -> (Decision, Option<RecordedUnits>) {
        with_strategy!(check.limit, |S, limit| {
            let limiter = HasLocalLimiter::<S>::limiter(self);
            let spent = limiter.spend_recorded(check.key, limit, check.spend());
            (S::core(&spent.decision), spent.receipt)
        })
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
        let (location, now) = (self.locate_table(check), self.now());
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
            // The table is locked, so the observer is not notified.
            let spend = Spend { cost: counted - entry.units, payment: Payment::Debit };
            with_strategy!(check.limit, |S, limit| {
                HasLocalLimiter::<S>::limiter(self).spend_at(check.key, limit, spend);
            });
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
        let (location, now) = (self.locate_table(check), self.now());
        let mut shard = location.map.shard_at(location.shard);
        let table = shard.find(location.key.hash, &location.key.key)?;
        let entry = table.find(*id, now).filter(|entry| !entry.is_settled)?;
        let was_left = duration_between(now, entry.expires_at);
        table.renew(*id, expiry(now, *ttl));
        Some(RenewedCheck { was_left, expires_in: *ttl })
    }

    pub(super) fn holders_of(&self, check: &Check<'_>) -> Vec<HeldReservation> {
        let (location, now) = (self.locate_table(check), self.now());
        let mut shard = location.map.shard_at(location.shard);
        let Some(table) = shard.find(location.key.hash, &location.key.key) else { return Vec::new() };
        table.holders(now).map(|entry| HeldReservation::new(entry, now)).collect()
    }

    /// Forgets a counter and its reservations. Returns whether there were any.
    pub(super) fn reset_with_reservations(&self, check: &Check<'_>) -> bool {
        let location = self.locate_table(check);
        let mut shard = location.map.shard_at(location.shard);
        // A table from which everything was released is as good as none.
        let table = shard.find(location.key.hash, &location.key.key);
        let had_table = table.is_some_and(|table| !table.is_empty());
        location.map.remove(&mut shard, &location.key);
        let had_state = match check.limit {
            Limit::Concurrency(_) => false,
            limit => with_strategy!(limit, |S, _limit| {
                HasLocalLimiter::<S>::limiter(self).reset_counter(check.key)
            }),
        };
        had_table || had_state
    }

    fn table_check<'p>(&'p self, check: &'p Check<'p>) -> TableCheck<'p> {
        let (state, decision) = (TableDecision::Open, Decision::refused());
        TableCheck {
            check,
            location: self.locate_table(check),
            state,
            decision,
            recorded: Timestamp::default(),
            units: 0,
        }
    }

    fn locate_table<'p>(&'p self, check: &Check<'p>) -> TableLocation<'p> {
        let map = match check.limit {
            Limit::Concurrency(_) => &self.concurrency().map,
            limit => with_strategy!(limit, |S, _limit| HasLocalLimiter::<S>::limiter(self).tables()),
        };
        let key = map.hash_key(check.key);
        TableLocation { map, shard: map.shard_index(key.hash), key }
    }
}

/// Locks the shards of all tables, in the order of map and shard.
fn lock_all<'p>(checks: &[TableCheck<'p>]) -> Vec<LockedShard<'p>> {
    let mut order: Vec<&TableLocation<'p>> = checks.iter().map(|one| &one.location).collect();
    order.sort_unstable_by_key(|location| location.shard_address());
    order.dedup_by_key(|location| location.shard_address());
    order.into_iter().map(TableLocation::lock).collect()
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
                let Entry { expires_at, is_settled, .. } = *known;
                TableDecision::Known(KnownReservation { expires_at, is_settled }, usage(table))
            }
            Some(_) => TableDecision::Conflict,
            None => decide(table),
        };
    }
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
    if let TableDecision::Known(KnownReservation { expires_at, is_settled }, _) = state {
        let expires_in = duration_between(now, expires_at);
        return Some(ReservedCheck { expires_in, is_known: true, is_ended: is_settled });
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
        Some(ReservedCheck { expires_in, is_known: false, is_ended: false })
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
