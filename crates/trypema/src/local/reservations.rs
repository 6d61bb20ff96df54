//! Reservations inside this process.
//!
//! The counter of a concurrency limit is a table of reservations. For every other strategy, a map of tables
//! stands beside the map of counters. The shards of the tables are locked first, in the order of map and
//! shard, and stay locked while the counters are locked and changed. So a reservation is at all of its
//! counters or at none, and nobody can settle it in between.

mod tables;

use std::slice;
use std::time::Duration;

use tables::{LockedTables, TableCheck, TableDecision, TableLocation, duration_between};

use super::map::NewState;
use super::multi::TakeOptions;
use super::provider::LocalRateLimiterProvider;
use crate::check::{Check, TakeResponse, validate};
use crate::clock::Timestamp;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::reservation::{
    Ending, HeldReservation, RenewRequest, RenewedCheck, ReserveRequest, ReserveResponse, SettleRequest,
    SettleStatus, SettledCheck,
};
use crate::strategy::reservations::{Entry, EntryState, ReservationTable, ReserveAttempt, Undoing};
use crate::strategy::{
    Concurrency, ConcurrencyLimit, Payment, RETRY_AFTER, Recorded, RecordedUnits, Spend, Strategy,
    with_strategy,
};
use crate::units::MAX_EXACT;

impl LocalRateLimiterProvider {
    pub(crate) fn reserve_by_name(
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
                Err(TrypemaError::ReservationConflict | TrypemaError::ReservationUndone) => {
                    Ok(Decision::refused())
                }
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
        let mut shards = TableCheck::lock_all(&checks);
        self.reserve_locked(&mut checks, &mut shards, request)
    }

    /// Reserves all of `checks` or none. The shards of their tables are locked, so the observer is notified later.
    fn reserve_locked(
        &self,
        checks: &mut [TableCheck<'_>],
        shards: &mut [LockedTables<'_>],
        request: ReserveRequest<'_>,
    ) -> Result<ReserveResponse, TrypemaError> {
        let now = self.now();
        for one in checks.iter() {
            let shard = one.shard_in(shards);
            if shard.find(one.location.key.hash, &one.location.key.key).is_none() {
                // Only before the first decision: a table that is forgotten after that could not be written as
                // it was decided.
                one.location.map.sweep(shard, now);
            }
        }
        for one in checks.iter_mut() {
            let shard = one.shard_in(shards);
            one.state = one.decide(shard, now, &request);
            (one.recorded.at, one.units) = (now, one.check.cost.min(MAX_EXACT));
        }
        // From here on, tables that were made for this request have to be inserted or released.
        let error = checks.iter().find_map(|one| one.state.error());
        if error.is_none() {
            self.decide_counters(checks, now);
        }
        let is_allowed = error.is_none() && checks.iter().all(|one| one.decision.is_allowed());
        if !is_allowed {
            for one in checks.iter_mut() {
                let shard = one.shard_in(shards);
                one.decision = one.unheld(shard, now).unwrap_or(one.decision);
            }
        }
        let mut receipts = Vec::with_capacity(checks.len());
        for one in checks.iter() {
            let shard = one.shard_in(shards);
            let entry = is_allowed.then(|| Entry {
                id: request.name.id,
                request: request.name.request,
                attempt: request.attempt,
                units: one.units,
                recorded: one.recorded.at,
                origin: one.recorded.origin,
                expires_at: expiry(now, request.ttl),
                state: EntryState::Open,
            });
            receipts.push(one.write(shard, now, entry));
        }
        if let Some(error) = error {
            return Err(error);
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
                // These fail the request before this is called.
                TableDecision::Conflict | TableDecision::Undone => Decision::refused(),
            };
        }
    }

    /// Takes the cost of all counters that have to decide, or of none.
    fn take_counters(&self, checks: &mut [TableCheck<'_>]) {
        if let [one] = checks {
            if one.state == TableDecision::Open {
                let (decision, recorded) = self.spend_recorded(one.check);
                one.decision = decision;
                if let Some(RecordedUnits { recorded, units }) = recorded {
                    (one.recorded, one.units) = (recorded, units);
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
                (one.recorded, one.units) = (receipt.recorded(), receipt.units());
            }
        }
    }

    /// Takes the cost of one counter. Returns the decision, and the units that were recorded.
    fn spend_recorded(&self, check: &Check<'_>) -> (Decision, Option<RecordedUnits>) {
        with_strategy!(check.limit, |S, limit| {
            let limiter = self.limiter::<S>();
            let spent = limiter.spend_recorded(check.key, limit, check.spend());
            (S::core(&spent.decision), spent.receipt)
        })
    }

    /// Returns the units of a counter that are left, as an allowed decision. Not for concurrency limits: their
    /// counters are the tables, whose shards are locked.
    fn usage(&self, check: &Check<'_>) -> Decision {
        with_strategy!(check.limit, |S, limit| {
            let limiter = self.limiter::<S>();
            S::core(&limiter.peek_at(check.key, limit, Spend::NOTHING).decision(limit))
        })
    }

    pub(crate) fn settle(&self, settlement: &SettleRequest<'_>) -> SettledCheck {
        let SettleRequest { check, id, ending, is_remembered } = settlement;
        if let Ending::Undone { attempt, marked_for } = *ending {
            return self.undo(check, ReserveAttempt { id: *id, number: attempt }, marked_for);
        }
        let (location, now) = (self.locate_table(check), self.now());
        let mut shard = location.map.shard_at(location.shard);
        let Some(table) = shard.find(location.key.hash, &location.key.key) else {
            return SettledCheck::default();
        };
        let Some(entry) = table.find(*id, now).copied() else { return SettledCheck::default() };
        if entry.state == EntryState::Settled {
            return SettledCheck { status: SettleStatus::SettledBefore, ..SettledCheck::default() };
        }
        let reserved = entry.units;
        let counted = if *ending == Ending::Estimate { reserved } else { check.cost };
        let refunded = self.count_difference(check, &entry, counted);
        let expires_in = duration_between(now, entry.expires_at);
        table.forget_expired(now);
        table.settle(*id, counted, *is_remembered);
        SettledCheck { status: SettleStatus::Settled, reserved, counted, refunded, expires_in }
    }

    /// Undoes an attempt at one counter.
    fn undo(&self, check: &Check<'_>, attempt: ReserveAttempt, marked_for: Duration) -> SettledCheck {
        let (TableLocation { map, shard, key }, now) = (self.locate_table(check), self.now());
        let marked_until = (!marked_for.is_zero()).then(|| expiry(now, marked_for));
        let mut shard = map.shard_at(shard);
        let undoing = if let Some(table) = shard.find(key.hash, &key.key) {
            table.undo(attempt, marked_until, now)
        } else if marked_until.is_none() {
            Undoing::Kept
        } else if !map.try_reserve(&mut shard, now) {
            Undoing::NoRoom
        } else {
            let (mut table, limit) = (ReservationTable::default(), limit_of_table(check));
            let undoing = table.undo(attempt, marked_until, now);
            map.insert_reserved(&mut shard, &key, NewState { state: table, limit: &limit, now });
            undoing
        };
        let entry = match undoing {
            Undoing::Removed(entry) => entry,
            Undoing::Kept => return SettledCheck::default(),
            Undoing::NoRoom => {
                return SettledCheck { status: SettleStatus::NoRoom, ..SettledCheck::default() };
            }
        };
        SettledCheck {
            status: SettleStatus::Settled,
            reserved: entry.units,
            counted: 0,
            refunded: self.count_difference(check, &entry, 0),
            expires_in: duration_between(now, entry.expires_at),
        }
    }

    /// Refunds the units that were reserved and not spent, or counts those that were spent beyond it. Returns
    /// the units refunded.
    fn count_difference(&self, check: &Check<'_>, entry: &Entry, counted: u64) -> u64 {
        if check.limit.is_held() {
            return entry.units;
        }
        if counted > entry.units {
            // The table is locked, so the observer is not notified.
            let spend = Spend { cost: counted - entry.units, payment: Payment::Debit };
            with_strategy!(check.limit, |S, limit| {
                self.limiter::<S>().spend_at(check.key, limit, spend);
            });
        }
        let units = entry.units.saturating_sub(counted);
        if units == 0 {
            return 0;
        }
        with_strategy!(check.limit, |S, limit| {
            let recorded = Recorded { at: entry.recorded, origin: entry.origin };
            let unspent = RecordedUnits { recorded, units };
            self.limiter::<S>().refund_recorded(check.key, limit, unspent)
        })
    }

    pub(crate) fn renew(&self, renewal: &RenewRequest<'_>) -> Option<RenewedCheck> {
        let RenewRequest { check, id, ttl } = renewal;
        let (location, now) = (self.locate_table(check), self.now());
        let mut shard = location.map.shard_at(location.shard);
        let table = shard.find(location.key.hash, &location.key.key)?;
        let entry = table.find(*id, now).filter(|entry| entry.state == EntryState::Open)?;
        let was_left = duration_between(now, entry.expires_at);
        table.renew(*id, expiry(now, *ttl));
        Some(RenewedCheck { was_left, expires_in: *ttl })
    }

    pub(crate) fn holders_of(&self, check: &Check<'_>) -> Vec<HeldReservation> {
        let (location, now) = (self.locate_table(check), self.now());
        let mut shard = location.map.shard_at(location.shard);
        let Some(table) = shard.find(location.key.hash, &location.key.key) else { return Vec::new() };
        table.holders(now).map(|entry| HeldReservation::new(entry, now)).collect()
    }

    /// Forgets a counter and its reservations. Returns whether there were any.
    pub(crate) fn reset_with_reservations(&self, check: &Check<'_>) -> bool {
        let location = self.locate_table(check);
        let mut shard = location.map.shard_at(location.shard);
        // A table from which everything was released is as good as none.
        let table = shard.find(location.key.hash, &location.key.key);
        let had_table = table.is_some_and(|table| !table.is_empty());
        location.map.remove(&mut shard, &location.key);
        let had_state = !check.limit.is_held()
            && with_strategy!(check.limit, |S, _limit| self.limiter::<S>().reset_counter(check.key));
        had_table || had_state
    }

    fn table_check<'p>(&'p self, check: &'p Check<'p>) -> TableCheck<'p> {
        TableCheck::new(check, self.locate_table(check))
    }

    fn locate_table<'p>(&'p self, check: &Check<'p>) -> TableLocation<'p> {
        let map = match check.limit.is_held() {
            true => &self.limiter::<Concurrency>().map,
            false => with_strategy!(check.limit, |S, _limit| self.limiter::<S>().tables()),
        };
        let key = map.hash_key(check.key);
        TableLocation { map, shard: map.shard_index(key.hash), key }
    }
}

/// Returns the limit of the table of a check, as the map of tables needs it.
fn limit_of_table(check: &Check<'_>) -> ConcurrencyLimit {
    check.limit.held().copied().unwrap_or_else(ConcurrencyLimit::of_table)
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
