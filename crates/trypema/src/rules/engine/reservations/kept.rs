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

use crate::check::{Check, Deadline, DecideRequest, TakeRequest};
use crate::clock::Timestamp;
use crate::error::TrypemaError;
use crate::provider::failure_policy::PolicyOf;
use crate::provider::{OnStoreFailure, Provider};
use crate::reservation::{
    Ending, HeldReservation, RenewRequest, RenewedCheck, ReservationName, ReserveRequest, ReserveResponse,
    SettleRequest, SettleResult, SettleStatus, SettledCheck,
};
use crate::rules::engine::Engine;
use crate::rules::set::RuleSet;
use crate::strategy::RecordedUnits;
use crate::strategy::reservations::ReservationId;
use crate::strategy::{Limit, Strategy, with_strategy};

/// The most parts that are kept: as many as attempts that are undone. Further ones are charged like takes, and cannot
/// be settled.
pub(super) const MAX_KEPT: usize = 16_384;

/// The number of parts that fail before the others are tried later.
const MAX_FAILURES: usize = 4;

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
    /// The units that the counters of this process recorded.
    pub(super) charged: RecordedUnits,
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

    /// Whether it was settled, under an id that its caller chose and may name again.
    pub(super) fn is_settled_by_id(&self) -> bool {
        self.counted.is_some() && self.name.id.is_chosen()
    }

    /// Whether the store has nothing to learn of it: it holds nothing, and its units no longer count anywhere.
    fn is_void(&self, limit: &Limit, now: Timestamp) -> bool {
        if self.is_open(now) || self.may_be_stored && now < self.expires_at {
            return false;
        }
        let retention_us = with_strategy!(limit, |S, limit| S::retention_us(limit));
        let is_past = self.made_at + Duration::from_micros(retention_us) <= now;
        limit.is_held() || self.counted == Some(0) || is_past
    }

    /// Adds a repeated request under the same id. If the first one has ended, the repeated one takes its place; returns
    /// the first one, under an id of its own, so that its units are charged.
    pub(super) fn repeat(&mut self, repeated: Self, now: Timestamp) -> Option<Self> {
        let may_be_stored = self.may_be_stored || repeated.may_be_stored;
        if self.is_open(now) {
            self.units = self.units.saturating_add(repeated.units);
            self.charged.units = self.charged.units.saturating_add(repeated.charged.units);
            self.may_be_stored = may_be_stored;
            return None;
        }
        let ended = std::mem::replace(self, Self { may_be_stored, ..repeated });
        let id = ReservationId::random(crate::random::bytes());
        let counted = Some(ended.counted.unwrap_or(ended.units));
        Some(Self { name: ReservationName { id, ..ended.name }, may_be_stored: false, counted, ..ended })
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
        let ended = |status| Some(Ok(SettledCheck { status, ..SettledCheck::default() }));
        let name = (request.id, check.key.into());
        let Some(part) = state.kept.get_mut(&name) else {
            let is_settled = state.settled.get(&name).is_some_and(|expires_at| now < *expires_at);
            return if is_settled { ended(SettleStatus::SettledBefore) } else { None };
        };
        if !part.is_open(now) {
            return ended(if part.is_settled_by_id() {
                SettleStatus::SettledBefore
            } else {
                SettleStatus::Unknown
            });
        }
        let reserved = part.units;
        let counted = if request.ending == Ending::Estimate { reserved } else { check.cost };
        let (expires_in, policy, charged) = (part.expires_in(now), part.policy, part.charged);
        part.counted = Some(counted);
        drop(state);
        let (refunded, counted_here) = match check.limit.is_held() {
            true => (reserved, 0),
            false => (reserved.saturating_sub(counted), counted),
        };
        self.provider().settle_without_store(&Check { cost: counted_here, ..*check }, charged, policy);
        Some(Ok(SettledCheck { status: SettleStatus::Settled, reserved, counted, refunded, expires_in }))
    }

    /// Renews the part of a reservation that is kept here. `None` if it is not.
    pub(super) fn renew_kept(
        &self,
        request: &RenewRequest<'_>,
    ) -> Option<Result<Option<RenewedCheck>, TrypemaError>> {
        let now = self.clock().now();
        let mut state = self.backlog.lock();
        let name = (request.id, request.check.key.into());
        let Some(part) = state.kept.get_mut(&name).filter(|part| part.is_open(now)) else {
            return (state.kept.contains_key(&name) || state.settled.contains_key(&name)).then_some(Ok(None));
        };
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
            let Some(charged) = receipt.and_then(|receipt| receipt.kept_here) else { continue };
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
                charged,
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

    /// Moves parts to the store, until it fails a few times. Returns the number of parts that it knows now, or need not
    /// know.
    pub(super) async fn move_kept(&self, names: &[KeptName]) -> usize {
        let set = self.set.load_full();
        let (mut moved, mut failures) = (0, 0);
        for name in names {
            let Some(part) = self.backlog.kept_part(name) else { continue };
            match self.move_part(&set, &name.1, &part).await {
                PartMoved::NotYet => failures += 1,
                ended => {
                    self.backlog.end_move(name, &part, ended, self.clock().now());
                    moved += 1;
                }
            }
            if failures == MAX_FAILURES {
                break;
            }
        }
        moved
    }

    /// Moves one part.
    async fn move_part(&self, set: &RuleSet, key: &str, part: &KeptPart) -> PartMoved {
        let now = self.clock().now();
        let Some(rule) = set.rule_of_counter(key) else {
            // The rule may come back, and count on.
            return if part.expires_at <= now { PartMoved::Unneeded } else { PartMoved::NotYet };
        };
        let limit = rule.limit_of(key);
        if part.is_void(limit, now) {
            return PartMoved::Unneeded;
        }
        if self.move_to_store(Check::new(key, limit, part.units), part).await {
            PartMoved::Moved
        } else {
            PartMoved::NotYet
        }
    }

    /// Reserves a part in the store, and settles it there if it was settled here. Returns whether the store knows it now.
    async fn move_to_store(&self, check: Check<'_>, part: &KeptPart) -> bool {
        let provider = self.provider();
        let deadline = provider.deadline();
        let ttl = part.expires_in(self.clock().now()).max(SHORTEST_TTL);
        match reserve_in_store(provider, &check, PartInStore { part, ttl }, deadline).await {
            StoreAnswer::Failed => return false,
            StoreAnswer::Refused => return self.charge(&check, part, deadline).await,
            StoreAnswer::Until(expires_in) if part.counted.is_none() && expires_in < ttl => {
                return provider.one(RenewRequest { check, id: part.name.id, ttl }, deadline).await.is_ok();
            }
            StoreAnswer::Until(_) => {}
        }
        let Some(counted) = part.counted else { return true };
        let check = Check { cost: counted, ..check };
        // Remembered: the client may repeat its settlement, and the first attempt may still arrive.
        let settlement = SettleRequest { check, id: part.name.id, ending: Ending::Cost, is_remembered: true };
        provider.one(settlement, deadline).await.is_ok()
    }

    /// Charges the store for a part without a reservation: its table has no room, or its id is that of another request.
    async fn charge(&self, check: &Check<'_>, part: &KeptPart, deadline: Deadline) -> bool {
        if check.limit.is_held() {
            return true;
        }
        let check = Check { cost: part.counted.unwrap_or(part.units), ..*check };
        let charged = self.provider().one(DecideRequest::debit(check), deadline).await;
        // Units that may have been charged are not charged again.
        charged.as_ref().map_or_else(TrypemaError::is_outcome_unknown, |_| true)
    }
}

/// The result of moving a part to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartMoved {
    /// The store knows it now.
    Moved,
    /// The store need not know it: it holds nothing, and its units no longer count.
    Unneeded,
    /// The store failed.
    NotYet,
}

/// A part, and the time for which the store is to reserve it.
#[derive(Clone, Copy)]
struct PartInStore<'p> {
    part: &'p KeptPart,
    ttl: Duration,
}

/// The answer of the store to a part.
enum StoreAnswer {
    /// It is reserved for so long, perhaps by an attempt whose answer was lost, or it has ended there.
    Until(Duration),
    /// The store cannot reserve it under its id.
    Refused,
    Failed,
}

/// Reserves a part in the store under its id, unless it is there already.
async fn reserve_in_store(
    provider: Provider<'_>,
    check: &Check<'_>,
    PartInStore { part, ttl }: PartInStore<'_>,
    deadline: Deadline,
) -> StoreAnswer {
    let take = TakeRequest { independent: std::slice::from_ref(check), ..TakeRequest::new(&[], deadline) };
    let request = ReserveRequest { take, name: part.name, attempt: part.attempt, ttl, is_debit: true };
    let Ok(response) = provider.all_or_nothing(request).wait().await else { return StoreAnswer::Failed };
    match (response.independent.first(), response.independent_receipts.first()) {
        (Some(Ok(_)), Some(Some(reserved))) if reserved.is_ended => StoreAnswer::Until(ttl),
        (Some(Ok(_)), Some(Some(reserved))) => StoreAnswer::Until(reserved.expires_in),
        (Some(Ok(_)), _) => StoreAnswer::Refused,
        _ => StoreAnswer::Failed,
    }
}
