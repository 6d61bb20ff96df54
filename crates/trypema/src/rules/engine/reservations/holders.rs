//! The holders of a counter, for administrators.

use sha2::{Digest, Sha256};

use crate::check::Check;
use crate::error::TrypemaError;
use crate::reservation::{HeldReservation, HoldersRequest};
use crate::rules::engine::Engine;
use crate::rules::engine::reservations::Report;
use crate::rules::reservation::{CounterName, Holder, Outstanding, SettleCosts, SettledStatus};
use crate::strategy::reservations::ReservationId;

impl Engine {
    /// Returns the reservations that a counter holds, in the order in which they were made; `None` if the
    /// name belongs to no rule. No failure policy applies: a failure of the store is an `Err`.
    pub async fn holders(&self, key: &str) -> Result<Option<Vec<Holder>>, TrypemaError> {
        let set = self.set.load_full();
        let key = &*set.canonical_name(key);
        let Some(rule) = set.rule_of_counter(key) else { return Ok(None) };
        let provider = self.provider();
        let check = Check::new(key, rule.limit_of(key), 0);
        let mut held = provider.one(HoldersRequest { check }, provider.deadline()).await?;
        for kept in self.kept_holders(key) {
            // The store may have made it, too, without an answer.
            if !held.iter().any(|held| held.id == kept.id) {
                held.push(kept);
            }
        }
        held.sort_by_key(|held| std::cmp::Reverse(held.age));
        Ok(Some(held.iter().map(holder).collect()))
    }

    /// Gives back the units of one reservation at one counter, for an administrator. The reservation stays as
    /// it is at its other counters. `None` if the name belongs to no rule.
    pub async fn release_holder(&self, key: &str, id: &str) -> Result<Option<bool>, TrypemaError> {
        if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(TrypemaError::InvalidReservation { reason: "an id has 32 hexadecimal digits" });
        }
        let set = self.set.load_full();
        let key = &*set.canonical_name(key);
        let Some(rule) = set.rule_of_counter(key) else { return Ok(None) };
        let provider = self.provider();
        let check = Check::new(key, rule.limit_of(key), 0);
        let mut held = self.kept_holders(key);
        held.extend(provider.one(HoldersRequest { check }, provider.deadline()).await?);
        let is_named = |held: &&HeldReservation| shown_id(held.id).eq_ignore_ascii_case(id);
        let Some(HeldReservation { id, .. }) = held.iter().find(is_named).copied() else {
            return Ok(Some(false));
        };
        let one = Outstanding {
            id,
            counters: vec![CounterName { key: key.to_owned(), is_shadow: false, kept_until: None }],
        };
        let settled = self.settle_counters(&one, SettleCosts::Nothing, Report::Observer).await;
        match settled.into_iter().next().map(|rule| rule.status) {
            Some(SettledStatus::Failed(error)) => Err(error),
            status => Ok(Some(matches!(status, Some(SettledStatus::Settled { .. })))),
        }
    }
}

fn holder(held: &HeldReservation) -> Holder {
    Holder { id: shown_id(held.id), units: held.units, age: held.age, expires_in: held.expires_in }
}

/// Returns the id by which administrators see a reservation: a digest, because a caller that knows the id itself can
/// settle the reservation.
fn shown_id(id: ReservationId) -> String {
    let digest = Sha256::new_with_prefix("trypema holder\0").chain_update(id.0).finalize();
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
