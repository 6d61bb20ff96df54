//! Spending more than is left.

use std::time::Duration;

use super::{LeasedSpend, LocalLimiter, TimedOutcome};
use crate::decision::DecisionTime;
use crate::local::map::KeyCall;
use crate::local::receipt::DecisionWithReceipt;
use crate::strategy::{Payment, Spend, Strategy};

impl<S: Strategy> LocalLimiter<S> {
    /// Takes `cost` if at least one unit is free, even if the cost is 0. A cost that does not fit is recorded all
    /// the same: later calls wait until the overdraft is paid. This is for costs that are known only afterwards.
    /// An abuse limit counts an attempt as usual.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trypema::{RateLimiter, TokenBucketLimits, TokenLimit};
    ///
    /// let rl = RateLimiter::builder().build()?;
    /// let limit = TokenBucketLimits::from(TokenLimit::new(100, Duration::from_secs(3600))?);
    /// let bucket = rl.local().token_bucket();
    ///
    /// assert!(bucket.take_postpaid("ann", &limit, 250).is_allowed());
    /// let denied = bucket.take_postpaid("ann", &limit, 1);
    /// // 151 of 250 have to be refilled, and 100 are in an hour.
    /// assert!(denied.retry_after().is_some_and(|wait| wait > Duration::from_secs(5400)));
    /// # Ok::<(), trypema::TrypemaError>(())
    /// ```
    pub fn take_postpaid<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        self.spend_observed(key, limit, Spend { cost, payment: Payment::Postpaid })
    }

    /// Records `cost` even if nothing is left. Later calls wait until the overdraft is paid. The decision is
    /// allowed, and shows what is left afterwards. An abuse limit counts an attempt as usual.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trypema::{FixedWindowLimit, RateLimiter};
    ///
    /// let rl = RateLimiter::builder().build()?;
    /// let limit = FixedWindowLimit::new(10, Duration::from_secs(3600))?;
    /// assert!(rl.local().fixed_window().debit("ann", &limit, 12).is_allowed());
    /// assert!(!rl.local().fixed_window().take("ann", &limit, 1).is_allowed());
    /// # Ok::<(), trypema::TrypemaError>(())
    /// ```
    pub fn debit<'l>(&self, key: &str, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        self.spend_observed(key, limit, Spend { cost, payment: Payment::Debit })
    }

    /// Same as [`LocalLimiter::take_postpaid`], with a receipt for [`LocalLimiter::refund`].
    pub fn take_postpaid_with_receipt<'l>(
        &self,
        key: &str,
        limit: &'l S::Limit,
        cost: u64,
    ) -> DecisionWithReceipt<S::Decision<'l>> {
        let spend = Spend { cost, payment: Payment::Postpaid };
        let request = || LeasedSpend { spend, lease: Duration::ZERO };
        self.with_observer(
            key,
            cost,
            |reserved: &DecisionWithReceipt<_>| S::core(&reserved.decision),
            || self.reserve_at(&self.map.hash_key(key), limit, request()),
        )
    }

    /// Spends by any payment, and notifies the observer if there is one.
    pub(in crate::local) fn spend_observed<'l>(
        &self,
        key: &str,
        limit: &'l S::Limit,
        spend: Spend,
    ) -> S::Decision<'l> {
        self.with_observer(key, spend.cost, S::core, || self.spend_at(key, limit, spend).decision(limit))
    }

    /// Spends by any payment, without notifying the observer.
    pub(crate) fn spend_at(&self, key: &str, limit: &S::Limit, spend: Spend) -> TimedOutcome<S> {
        if spend.payment == Payment::Prepaid {
            return self.take_at(key, limit, spend.cost);
        }
        let key = self.map.hash_key(key);
        let shard = &mut *self.map.shard(key.hash);
        let now = self.clock.now();
        let (outcome, _) = self.commit_exactly(shard, KeyCall { key: &key, limit, now }, spend.at(now));
        TimedOutcome { outcome, decided_at: DecisionTime::exactly(now) }
    }
}
