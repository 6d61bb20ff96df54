//! Spending more than is left.

use std::time::Duration;

use super::RedisLimiter;
use crate::error::TrypemaError;
use crate::local::DecisionWithReceipt;
use crate::redis::key::RedisKey;
use crate::redis::key_spend::KeySpend;
use crate::redis::receipt::RedisReceipt;
use crate::strategy::{Effect, Payment, Spend, Wire};

impl<S: Wire> RedisLimiter<S> {
    /// Takes `cost` if at least one unit is free, even if the cost is 0. A cost that does not fit is recorded all
    /// the same: later calls wait until the overdraft is paid. This is for costs that are known only afterwards.
    pub async fn take_postpaid<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        let spend = Spend { cost, payment: Payment::Postpaid };
        self.decide(self.name(key), Effect::Take, KeySpend { key, limit, spend }).await
    }

    /// Records `cost` even if nothing is left. Later calls wait until the overdraft is paid. The decision is
    /// allowed, and shows what is left afterwards. An abuse limit counts an attempt as usual.
    pub async fn debit<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        let spend = Spend { cost, payment: Payment::Debit };
        self.decide(self.name(key), Effect::Take, KeySpend { key, limit, spend }).await
    }

    /// Same as [`RedisLimiter::take_postpaid`], with a receipt for a later [`RedisLimiter::refund`].
    pub async fn take_postpaid_with_receipt<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<DecisionWithReceipt<S::Decision<'l>, RedisReceipt>, TrypemaError> {
        let spend = Spend { cost, payment: Payment::Postpaid };
        self.spend_with_receipt(KeySpend { key, limit, spend }, Duration::ZERO).await
    }
}
