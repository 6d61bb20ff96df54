//! Taking with a receipt, and refunding by it.

use std::time::Duration;

use super::{RedisLimiter, ScriptOutcome};
use crate::clock::Timestamp;
use crate::error::TrypemaError;
use crate::local::DecisionWithReceipt;
use crate::redis::key::{RedisKey, receipt_name};
use crate::redis::protocol::{CheckRequest, Verb, put_origin};
use crate::redis::receipt::{self, RedisReceipt};
use crate::redis::verb_call::{LimitedKey, VerbArgs, VerbCall};
use crate::strategy::Wire;

impl<S: Wire> RedisLimiter<S> {
    /// Takes `cost` if it fits, and issues a receipt for a later [`RedisLimiter::refund`].
    pub async fn reserve<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<DecisionWithReceipt<S::Decision<'l>, RedisReceipt>, TrypemaError> {
        self.reserve_for(key, limit, cost, Duration::ZERO).await
    }

    /// Same as [`RedisLimiter::reserve`], for units that the caller may spend until `lease` has passed.
    ///
    /// Redis counts the units at once, and records them at the end of the lease, or at the end of an aligned
    /// window if that is sooner (see [`RedisReceipt::recorded_at`]). So no interval sees more than the limit.
    pub async fn reserve_for<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
        lease: Duration,
    ) -> Result<DecisionWithReceipt<S::Decision<'l>, RedisReceipt>, TrypemaError> {
        let extra = u64::try_from(lease.as_micros()).unwrap_or(u64::MAX);
        let args = VerbArgs { extra, ..VerbArgs::new(Verb::Reserve, cost) };
        self.reserve_with(VerbCall { key, limit, args }).await
    }

    pub(super) async fn reserve_with<'l>(
        &self,
        call: VerbCall<'_, 'l, S::Limit>,
    ) -> Result<DecisionWithReceipt<S::Decision<'l>, RedisReceipt>, TrypemaError> {
        let core =
            |reservation: &DecisionWithReceipt<S::Decision<'l>, RedisReceipt>| S::core(&reservation.decision);
        let VerbCall { key, limit, args } = call;
        let started = self.started();
        let result = match self.run_verb(self.store.name(key, S::SUFFIX), call).await {
            Ok(outcome) => Ok(self.reservation(key, limit, outcome)),
            Err(failure) => self
                .or_fallback(call, Err(failure))
                .map(|decision| DecisionWithReceipt { decision, receipt: None }),
        };
        self.notify_decision(key, args.cost, started, result.as_ref().ok().map(core));
        result
    }

    pub(in super::super) fn reservation<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        outcome: ScriptOutcome<S>,
    ) -> DecisionWithReceipt<S::Decision<'l>, RedisReceipt> {
        let is_taken = S::is_admitted(&outcome.outcome) && outcome.call.cost > 0;
        let receipt = is_taken.then(|| RedisReceipt {
            id: receipt::next_id(),
            key: key.clone(),
            strategy: S::NUMBER,
            recorded: S::recorded_at(limit, &outcome.outcome, outcome.call),
            origin: outcome.reply.origin,
            units: S::recorded_units(limit, &outcome.outcome, outcome.call),
            resets: u32::try_from(outcome.reply.number).unwrap_or(u32::MAX),
        });
        DecisionWithReceipt { decision: outcome.decision(limit), receipt }
    }

    /// Refunds the units of `receipt` that still count. Returns their number. A receipt of another key, or
    /// one that was used before, refunds nothing.
    pub async fn refund(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        receipt: &RedisReceipt,
    ) -> Result<u64, TrypemaError> {
        self.refund_with_deadline(self.deadline_from_now(), LimitedKey { key, limit }, receipt).await
    }

    /// Same as [`RedisLimiter::refund`], with a deadline.
    pub(crate) async fn refund_with_deadline(
        &self,
        deadline: Timestamp,
        LimitedKey { key, limit }: LimitedKey<'_, '_, S::Limit>,
        receipt: &RedisReceipt,
    ) -> Result<u64, TrypemaError> {
        match self.refund_request(key, limit, receipt) {
            Some(request) => self.run_numeric_with_deadline(deadline, key, request).await,
            None => Ok(0),
        }
    }

    /// Returns the request for a refund; `None` if the receipt belongs to another key or strategy.
    pub(in super::super) fn refund_request(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        receipt: &RedisReceipt,
    ) -> Option<CheckRequest> {
        if receipt.key != *key || receipt.strategy != S::NUMBER {
            return None;
        }
        let extra = receipt.recorded.as_micros();
        let args = VerbArgs { extra, ..VerbArgs::new(Verb::Refund, receipt.units) };
        let mut request = self.check_request(key, Some(limit), args);
        request.resets = receipt.resets;
        put_origin(&mut request.limit, receipt.origin);
        request.helpers.push(receipt_name(&self.store.name(key, S::SUFFIX), receipt.id));
        Some(request)
    }
}
