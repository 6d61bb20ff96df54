//! Taking with a receipt, and refunding by it.

use std::time::Duration;

use super::RedisLimiter;
use crate::clock::Timestamp;
use crate::error::TrypemaError;
use crate::local::DecisionWithReceipt;
use crate::redis::batcher::CallOptions;
use crate::redis::failure::{RedisFailure, RedisFailureKind};
use crate::redis::key::{RedisKey, receipt_name};
use crate::redis::key_spend::KeySpend;
use crate::redis::protocol::{CheckReply, CheckRequest, put_origin, read_origin};
use crate::redis::receipt::{self, RedisReceipt};
use crate::redis::verb;
use crate::strategy::{Effect, Wire};

impl<S: Wire> RedisLimiter<S> {
    /// Takes `cost` if it fits, and issues a receipt for a later [`RedisLimiter::refund`].
    pub async fn take_with_receipt<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<DecisionWithReceipt<S::Decision<'l>, RedisReceipt>, TrypemaError> {
        self.take_with_receipt_for(key, limit, cost, Duration::ZERO).await
    }

    /// Same as [`RedisLimiter::take_with_receipt`], for units that the caller may spend until `lease` has passed.
    ///
    /// Redis counts the units at once, and records them at the end of the lease, or at the end of an aligned
    /// window if that is sooner (see [`RedisReceipt::recorded_at`]). So no interval sees more than the limit.
    pub async fn take_with_receipt_for<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
        lease: Duration,
    ) -> Result<DecisionWithReceipt<S::Decision<'l>, RedisReceipt>, TrypemaError> {
        self.spend_with_receipt(KeySpend::new(key, limit, cost), lease).await
    }

    pub(super) async fn spend_with_receipt<'l>(
        &self,
        call: KeySpend<'_, 'l, S::Limit>,
        lease: Duration,
    ) -> Result<DecisionWithReceipt<S::Decision<'l>, RedisReceipt>, TrypemaError> {
        let started = self.started();
        let result = match self.run_with_receipt(call, lease, self.store.call_options()).await {
            Ok(taken) => Ok(taken),
            Err(failure) => self
                .or_fallback(Effect::Take, call, Err(failure))
                .map(|decision| DecisionWithReceipt { decision, receipt: None }),
        };
        let decision = result.as_ref().ok().map(|taken| S::core(&taken.decision));
        self.notify_decision(call.key, call.spend.cost, started, decision);
        result
    }

    /// Takes `cost` if it fits, and issues a receipt. Applies no failure policy.
    pub(crate) async fn take_with_receipt_without_policy<'l>(
        &self,
        deadline: Timestamp,
        call: KeySpend<'_, 'l, S::Limit>,
    ) -> Result<DecisionWithReceipt<S::Decision<'l>, RedisReceipt>, RedisFailure> {
        self.run_with_receipt(call, Duration::ZERO, CallOptions::with_deadline(deadline)).await
    }

    async fn run_with_receipt<'l>(
        &self,
        call: KeySpend<'_, 'l, S::Limit>,
        lease: Duration,
        options: CallOptions,
    ) -> Result<DecisionWithReceipt<S::Decision<'l>, RedisReceipt>, RedisFailure> {
        let request = self.request(verb::TAKE_WITH_RECEIPT, call.key, Some(call.limit)).lasting(lease);
        let reply = self.charge_and_send(request, call, options).await?;
        Self::read_with_receipt(call, lease, &reply)
    }

    pub(in crate::redis) fn read_with_receipt<'l>(
        call: KeySpend<'_, 'l, S::Limit>,
        lease: Duration,
        reply: &CheckReply,
    ) -> Result<DecisionWithReceipt<S::Decision<'l>, RedisReceipt>, RedisFailure> {
        let (KeySpend { key, limit, spend }, reader) = (call, &mut reply.reader());
        let malformed = || RedisFailure::new(RedisFailureKind::BadReply, "the script's reply has no origin");
        let origin = read_origin(reader).ok_or_else(malformed)?;
        let call = spend.at(reply.now).with_stamp(reply.now + lease);
        let found = Self::read(limit, call, reply, reader)?;
        let is_taken = S::is_admitted(&found.outcome) && call.cost > 0;
        let receipt = is_taken.then(|| RedisReceipt {
            id: receipt::next_id(),
            key: key.clone(),
            strategy: S::NUMBER,
            recorded: S::recorded_at(limit, &found.outcome, call),
            origin,
            units: S::recorded_units(limit, &found.outcome, call),
            resets: u32::try_from(reply.number).unwrap_or(u32::MAX),
        });
        Ok(DecisionWithReceipt { decision: found.decision(limit), receipt })
    }

    /// Refunds the units of `receipt` that still count. Returns their number. A receipt of another key, or
    /// one that was used before, refunds nothing.
    pub async fn refund(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        receipt: &RedisReceipt,
    ) -> Result<u64, TrypemaError> {
        self.refund_with_deadline(self.deadline_from_now(), key, limit, receipt).await
    }

    /// Same as [`RedisLimiter::refund`], with a deadline.
    pub(crate) async fn refund_with_deadline(
        &self,
        deadline: Timestamp,
        key: &RedisKey,
        limit: &S::Limit,
        receipt: &RedisReceipt,
    ) -> Result<u64, TrypemaError> {
        match self.refund_request(key, limit, receipt) {
            Some(request) => self.run_numeric_with_deadline(deadline, key, request).await,
            None => Ok(0),
        }
    }

    /// Returns the request for a refund; `None` if the receipt belongs to another key or strategy.
    pub(in crate::redis) fn refund_request(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        receipt: &RedisReceipt,
    ) -> Option<CheckRequest> {
        if receipt.key != *key || receipt.strategy != S::NUMBER {
            return None;
        }
        let request = self.request(verb::REFUND, key, Some(limit)).spending(receipt.units.into());
        let mut request = CheckRequest { time_us: receipt.recorded.as_micros(), ..request };
        put_origin(&mut request.arguments, receipt.origin);
        request.arguments.extend_from_slice(&receipt.resets.to_le_bytes());
        request.helpers.push(receipt_name(&request.name, receipt.id));
        Some(request)
    }
}
