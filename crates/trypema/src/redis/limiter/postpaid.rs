//! Spending more than is left.

use super::RedisLimiter;
use crate::error::TrypemaError;
use crate::local::DecisionWithReceipt;
use crate::redis::key::RedisKey;
use crate::redis::protocol::Verb;
use crate::redis::receipt::RedisReceipt;
use crate::redis::verb_call::{VerbArgs, VerbCall};
use crate::strategy::{Payment, Wire};

impl<S: Wire> RedisLimiter<S> {
    /// Takes `cost` if at least one unit is free, even if the cost is 0. A cost that does not fit is recorded all
    /// the same: later calls wait until the overdraft is paid. This is for costs that are known only afterwards.
    pub async fn take_postpaid<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        let args = VerbArgs::new(Verb::Take, cost).with_payment(Payment::Postpaid);
        self.decide(self.store.name(key, S::SUFFIX), VerbCall::new(key, limit, args)).await
    }

    /// Records `cost` even if nothing is left. Later calls wait until the overdraft is paid. The decision is
    /// allowed, and shows what is left afterwards. An abuse limit counts an attempt as usual.
    pub async fn debit<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<S::Decision<'l>, TrypemaError> {
        let args = VerbArgs::new(Verb::Take, cost).with_payment(Payment::Debit);
        self.decide(self.store.name(key, S::SUFFIX), VerbCall::new(key, limit, args)).await
    }

    /// Same as [`RedisLimiter::take_postpaid`], with a receipt for a later [`RedisLimiter::refund`].
    pub async fn reserve_postpaid<'l>(
        &self,
        key: &RedisKey,
        limit: &'l S::Limit,
        cost: u64,
    ) -> Result<DecisionWithReceipt<S::Decision<'l>, RedisReceipt>, TrypemaError> {
        let args = VerbArgs::new(Verb::Reserve, cost).with_payment(Payment::Postpaid);
        self.reserve_with(VerbCall { key, limit, args }).await
    }
}
