//! Reservations that this process keeps, because the store was unreachable when they were made.
//!
//! The failure policy admitted them by the counters of this process. They keep their ids: as long as the store does not
//! know them, they are settled, renewed and listed here. When the store answers again, the engine reserves them there
//! under their ids, for the time that is left, even if they do not fit; from then on any process can settle them. What
//! was settled here is settled there at the same cost. Each step can be repeated, because the store knows the ids.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::backlog::PendingUndo;

use crate::check::{Check, Deadline, Receipts, TakeRequest};
use crate::clock::Timestamp;
use crate::error::TrypemaError;
use crate::provider::failure_policy::PolicyOf;
use crate::provider::{CheckVerb, Fallback, OnStoreFailure, Provider};
use crate::reservation::{
    Ending, HeldReservation, RenewRequest, RenewedCheck, ReservationName, ReserveRequest, ReserveResponse,
    SettleRequest, SettleResult, SettleStatus, SettledCheck,
};
use crate::rules::engine::Engine;
use crate::rules::set::RuleSet;
use crate::strategy::Limit;
use crate::strategy::reservations::ReservationId;

/// The most parts that are kept: as many as attempts that are undone. Further ones are charged like takes, and cannot
/// be settled.
pub(super) const MAX_KEPT: usize = 16_384;

/// The shortest time for which an expired part is reserved in the store, so that its units are counted there.
const SHORTEST_TTL: Duration = Duration::from_secs(1);

/// The part of a reservation at one counter.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KeptPart {
    pub(super) name: ReservationName,
    pub(super) attempt: u64,
    pub(super) units: u64,
    pub(super) made_at: Timestamp,
    pub(super) expires_at: Timestamp,
    /// Whether the store may have reserved it, too, and the answer was lost.
    pub(super) may_be_stored: bool,
    pub(super) policy: Option<OnStoreFailure>,
    /// The units that it was settled at.
    pub(super) counted: Option<u64>,
}

/// The parts that are kept, by id and counter.
pub(super) type KeptParts = HashMap<KeptName, KeptPart>;

/// The id of a reservation, and a counter.
pub(super) type KeptName = (ReservationId, Box<str>);

impl KeptPart {
    fn is_open(&self, now: Timestamp) -> bool {
        self.counted.is_none() && now < self.expires_at
    }

    /// Whether the store has nothing to learn of it.
    fn is_void(&self, limit: &Limit, now: Timestamp) -> bool {
        let holds_nothing = match limit {
            Limit::Concurrency(_) => !self.is_open(now),
            _ => self.counted == Some(0),
        };
        holds_nothing && !self.may_be_stored
    }

    fn expires_in(&self, now: Timestamp) -> Duration {
        Duration::from_micros(self.expires_at.as_micros().saturating_sub(now.as_micros()))
    }

    pub(super) fn held(&self, now: Timestamp) -> Option<HeldReservation> {
        self.is_open(now).then(|| HeldReservation {
            id: self.name.id,
            units: self.units,
            age: Duration::from_micros(now.as_micros().saturating_sub(self.made_at.as_micros())),
            expires_in: self.expires_in(now),
        })
    }
}

impl Engine {
    /// Settles the part of a reservation that is kept here. `None` if it is not.
    pub(super) fn settle_kept(&self, request: &SettleRequest<'_>) -> Option<SettleResult> {
        let (now, check) = (self.clock().now(), &request.check);
        let mut state = self.backlog.lock();
        let part = state.kept.get_mut(&(request.id, check.key.into()))?;
        if !part.is_open(now) {
            let status = match part.counted.is_some() && request.id.is_chosen() {
                true => SettleStatus::SettledBefore,
                false => SettleStatus::Unknown,
            };
            return Some(Ok(SettledCheck { status, ..SettledCheck::default() }));
        }
        let reserved = part.units;
        let counted = if request.ending == Ending::Estimate { reserved } else { check.cost };
        let (expires_in, policy) = (part.expires_in(now), part.policy);
        part.counted = Some(counted);
        drop(state);
        let refunded = match check.limit {
            Limit::Concurrency(_) => reserved,
            _ => reserved.saturating_sub(counted),
        };
        let provider = self.provider();
        if refunded > 0 {
            provider.release_without_store(&Check { cost: refunded, ..*check }, policy);
        }
        if counted > reserved && !matches!(check.limit, Limit::Concurrency(_)) {
            let check = Check { cost: counted - reserved, ..*check };
            provider.decide_without_store(Fallback { check, verb: CheckVerb::ReserveMore, policy });
        }
        Some(Ok(SettledCheck { status: SettleStatus::Settled, reserved, counted, refunded, expires_in }))
    }

    /// Renews the part of a reservation that is kept here. `None` if it is not.
    pub(super) fn renew_kept(
        &self,
        request: &RenewRequest<'_>,
    ) -> Option<Result<Option<RenewedCheck>, TrypemaError>> {
        let now = self.clock().now();
        let mut state = self.backlog.lock();
        let part = state.kept.get_mut(&(request.id, request.check.key.into()))?;
        if !part.is_open(now) {
            return Some(Ok(None));
        }
        let was_left = part.expires_in(now);
        part.expires_at = now + request.ttl;
        Some(Ok(Some(RenewedCheck { was_left, expires_in: request.ttl })))
    }

    /// Keeps the parts of a reservation that the failure policy has admitted by the counters of this process. Removes
    /// them from `lost`, because the store will learn of them.
    pub(super) fn keep_here(
        self: &Arc<Self>,
        request: ReserveRequest<'_>,
        response: &ReserveResponse,
        policy_of: &PolicyOf<'_>,
        lost: &mut Vec<PendingUndo>,
    ) {
        let now = self.clock().now();
        let mut parts = Vec::new();
        for (index, (check, receipt)) in request.take.checks.iter().zip(&response.receipts).enumerate() {
            if !receipt.is_some_and(|receipt| receipt.is_kept_here) {
                continue;
            }
            let lost_before = lost.len();
            lost.retain(|lost| *lost.key != *check.key);
            let part = KeptPart {
                name: request.name,
                attempt: request.attempt,
                units: check.cost,
                made_at: now,
                expires_at: now + request.ttl,
                may_be_stored: lost.len() < lost_before,
                policy: policy_of(index),
                counted: None,
            };
            parts.push(((request.name.id, check.key.into()), part));
        }
        if !parts.is_empty() {
            self.keep(parts);
        }
    }

    /// Returns the reservations of a counter that are kept here.
    pub(super) fn kept_holders(&self, key: &str) -> Vec<HeldReservation> {
        let now = self.clock().now();
        let state = self.backlog.lock();
        let of_key = state.kept.iter().filter(|((_, counter), _)| **counter == *key);
        of_key.filter_map(|(_, part)| part.held(now)).collect()
    }

    /// Moves parts to the store, until it fails. Returns the number of parts that it knows now, or need not know.
    pub(super) async fn move_kept(&self, names: &[KeptName]) -> usize {
        let set = self.set.load_full();
        for (moved, name) in names.iter().enumerate() {
            let Some(part) = self.backlog.kept_part(name) else { continue };
            let is_there = self.move_part(&set, &name.1, &part).await;
            if !is_there {
                return moved;
            }
            self.backlog.end_move(name, &part);
        }
        names.len()
    }

    async fn move_part(&self, set: &RuleSet, key: &str, part: &KeptPart) -> bool {
        let now = self.clock().now();
        let Some(limit) = set.rule_of_counter(key).map(|rule| rule.limit_of(key)) else { return true };
        if part.is_void(limit, now) {
            return true;
        }
        let provider = self.provider();
        let check = Check::new(key, limit, part.units);
        let deadline = provider.deadline();
        if !reserve_in_store(provider, &check, part, now, deadline).await {
            return false;
        }
        let Some(counted) = part.counted else { return true };
        let check = Check { cost: counted, ..check };
        let settlement =
            SettleRequest { check, id: part.name.id, ending: Ending::Cost, is_remembered: false };
        let settled = provider.settle_all(std::slice::from_ref(&settlement), deadline).wait().await;
        settled.iter().all(Result::is_ok)
    }
}

/// Reserves a part in the store under its id, unless it is there already. Returns whether it is there.
async fn reserve_in_store(
    provider: &dyn Provider,
    check: &Check<'_>,
    part: &KeptPart,
    now: Timestamp,
    deadline: Deadline,
) -> bool {
    let take = TakeRequest {
        checks: &[],
        independent: std::slice::from_ref(check),
        if_unreachable: &[],
        receipts: Receipts::Unwanted,
        deadline,
    };
    let ttl = part.expires_in(now).max(SHORTEST_TTL);
    let request = ReserveRequest { take, name: part.name, attempt: part.attempt, ttl, is_debit: true };
    // A table without room denies it. Then its units stay uncounted, as those that were never charged.
    let reserved = provider.reserve(request).wait().await;
    reserved.is_ok_and(|response| response.independent.iter().all(Result::is_ok))
}
