//! Taking with a receipt, and refunding by it.

use std::time::Duration;

use super::{Found, Limiter};
use crate::clock::Timestamp;
use crate::error::TrypemaError;
use crate::redis::ask::{Ask, Verb};
use crate::redis::key::RedisKey;
use crate::redis::key_call::{Asking, KeyCall};
use crate::redis::receipt::{self, Receipt, Reservation};
use crate::strategy::Wire;

impl<S: Wire> Limiter<S> {
    /// Takes `cost` if it fits, and issues a receipt for a later [`Limiter::refund`].
    pub async fn reserve<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<Reservation<S::Decision<'l>>, TrypemaError> {
        self.reserve_for(key, limit, cost, Duration::ZERO).await
    }

    /// Same as [`Limiter::reserve`], for units that the caller may spend until `lease` has passed.
    ///
    /// Redis counts the units at once, and records them at the end of the lease, or at the end of an
    /// aligned window if that is sooner (see [`Receipt::recorded_at`]). So no interval sees more than the
    /// limit.
    pub async fn reserve_for<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
        lease: Duration,
    ) -> Result<Reservation<S::Decision<'l>>, TrypemaError> {
        let core = |reservation: &Reservation<S::Decision<'l>>| S::core(&reservation.decision);
        let extra = u64::try_from(lease.as_micros()).unwrap_or(u64::MAX);
        let asking = Asking { verb: Verb::Reserve, cost, extra };
        let started = self.started();
        let call = KeyCall { key, limit, asking };
        let result = match self.found(self.store.name(key, S::SUFFIX), call).await {
            Ok(found) => Ok(self.reservation(key, limit, found)),
            Err(failure) => {
                self.or_substitute(call, Err(failure)).map(|decision| Reservation { decision, receipt: None })
            }
        };
        self.tell(key, cost, started, result.as_ref().ok().map(core));
        result
    }

    pub(in super::super) fn reservation<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        found: Found<S>,
    ) -> Reservation<S::Decision<'l>> {
        let is_taken = S::is_admitted(&found.outcome) && found.call.cost > 0;
        let receipt = is_taken.then(|| Receipt {
            id: receipt::next_id(),
            key: key.clone(),
            strategy: S::NUMBER,
            recorded: S::recorded_at(limit, &found.outcome, found.call),
            units: found.call.cost,
            resets: u32::try_from(found.told.number).unwrap_or(u32::MAX),
        });
        Reservation { decision: found.decision(limit), receipt }
    }

    /// Refunds the units of `receipt` that still count. Returns their number. A receipt of another key, or
    /// one that was used before, refunds nothing.
    pub async fn refund(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        receipt: &Receipt,
    ) -> Result<u64, TrypemaError> {
        self.refund_until(self.deadline_from_now(), (key, limit), receipt).await
    }

    /// Same as [`Limiter::refund`], with a deadline.
    pub(crate) async fn refund_until(
        &self,
        deadline: Timestamp,
        (key, limit): (&RedisKey, &S::Limit),
        receipt: &Receipt,
    ) -> Result<u64, TrypemaError> {
        match self.ask_refund(key, limit, receipt) {
            Some(ask) => self.number_until(deadline, key, ask).await,
            None => Ok(0),
        }
    }

    /// Returns the request for a refund; `None` if the receipt belongs to another key or strategy.
    pub(in super::super) fn ask_refund(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        receipt: &Receipt,
    ) -> Option<Ask> {
        if receipt.key != *key || receipt.strategy != S::NUMBER {
            return None;
        }
        let asking = Asking { verb: Verb::Refund, cost: receipt.units, extra: receipt.recorded.as_micros() };
        let mut ask = self.ask(key, Some(limit), asking);
        ask.resets = receipt.resets;
        let mut name = self.store.name(key, S::SUFFIX);
        name.extend_from_slice(format!(":receipt:{:032x}", receipt.id).as_bytes());
        ask.helpers.push(name);
        Some(ask)
    }
}
