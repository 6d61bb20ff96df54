//! Several checks in one request, of which leases decide some.
//!
//! Checks without a lease are sent to Redis first, in one call, and with receipts if other checks have
//! leases. Then the leased checks are spent in this process. If one of them is denied after all, everything
//! is refunded. If a remembered denial applies to a check, the request is denied without a call to Redis.
//! A postpaid check is always sent to Redis: neither leases nor remembered denials apply to it.
//! Each check has its own result, so that the caller can apply a failure policy per check.

#[cfg(feature = "rules")]
mod decide_one;
mod item;

use super::decide::{CountCall, DecidedBy};
use super::provider::HybridRateLimiterProvider;
use super::receipt::HybridReceipt;
use crate::check::{
    Check, CheckResult, Deadline, Failed, MultiDecision, Receipts, TakeRequest, TakeResponse, validate,
};
use crate::clock::Timestamp;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::redis::{KeySpend, RedisKey, all};
use crate::strategy::{Strategy, with_strategy};
use item::CheckItem;

impl HybridRateLimiterProvider {
    /// Takes all of `checks`, or none of them. They may have any strategies and keys. A failure of Redis is
    /// always an `Err` here; no failure policy is applied.
    ///
    /// Leased checks are decided in this process. The others are sent to Redis as by
    /// [`redis().take_all`](crate::redis::RedisRateLimiterProvider::take_all). If a remembered denial
    /// applies to one check, the others are only peeked at, to report their remaining units.
    pub async fn take_all(&self, checks: &[Check<'_>]) -> Result<MultiDecision<HybridReceipt>, TrypemaError> {
        let taken = self.take_or_fail(checks, Receipts::Unwanted).await?;
        Ok(MultiDecision { receipts: Vec::new(), ..taken })
    }

    /// Same as [`take_all`](Self::take_all), with receipts for a later [`refund_all`](Self::refund_all).
    pub async fn take_all_with_receipts(
        &self,
        checks: &[Check<'_>],
    ) -> Result<MultiDecision<HybridReceipt>, TrypemaError> {
        self.take_or_fail(checks, Receipts::Wanted).await
    }

    async fn take_or_fail(
        &self,
        checks: &[Check<'_>],
        receipts: Receipts,
    ) -> Result<MultiDecision<HybridReceipt>, TrypemaError> {
        let deadline = self.redis.deadline_from_now();
        let request = TakeRequest { receipts, ..TakeRequest::new(checks, deadline) };
        let mut response = self.take(request).await?;
        let is_missing = |index: &usize| response.decisions[*index].is_none();
        let missing: Vec<usize> = (0..checks.len()).filter(is_missing).collect();
        if response.failures.is_empty() && !missing.is_empty() {
            let peeked: Vec<Check<'_>> = missing.iter().map(|index| checks[*index]).collect();
            for (index, peeked) in missing.into_iter().zip(self.peek_uncharged(&peeked, deadline).await) {
                response.decisions[index] = Some(peeked?);
            }
        }
        response.into_multi_decision()
    }

    /// Returns the decision on each check as if it were the only one. Spends nothing.
    pub async fn peek_all(&self, checks: &[Check<'_>]) -> Result<MultiDecision<HybridReceipt>, TrypemaError> {
        validate(checks)?;
        let peeked = self.peek_each(checks, self.redis.deadline_from_now()).await;
        let decisions: Vec<Decision> = peeked.into_iter().collect::<Result<_, _>>()?;
        let is_allowed = decisions.iter().all(Decision::is_allowed);
        Ok(MultiDecision { is_allowed, decisions, receipts: Vec::new() })
    }

    /// Refunds the takes of a [`take_all_with_receipts`](Self::take_all_with_receipts) by its receipts. `checks` must be the
    /// same.
    pub async fn refund_all(
        &self,
        checks: &[Check<'_>],
        receipts: &[Option<HybridReceipt>],
    ) -> Result<(), TrypemaError> {
        let taken =
            checks.iter().zip(receipts).filter_map(|(check, receipt)| Some((check, receipt.as_ref()?)));
        let refunded = self.refund_by_receipts(taken, self.redis.deadline_from_now()).await;
        refunded.into_iter().try_for_each(|refunded| refunded.map(|_| ()))
    }

    /// Makes refunds by their receipts, each independently.
    pub(super) async fn refund_by_receipts<'r>(
        &self,
        taken: impl Iterator<Item = (&'r Check<'r>, &'r HybridReceipt)>,
        deadline: Deadline,
    ) -> Vec<Result<u64, TrypemaError>> {
        all(taken.map(|(check, receipt)| self.refund_by_receipt(check, receipt, deadline))).await
    }

    /// Refunds a take. Leased units go back to their lease, the others to Redis.
    pub(crate) async fn refund_by_receipt(
        &self,
        check: &Check<'_>,
        receipt: &HybridReceipt,
        deadline: Deadline,
    ) -> Result<u64, TrypemaError> {
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, limit| {
            self.limiter::<S>().refund_with_deadline(deadline.until(), &key, limit, receipt).await
        })
    }

    /// Peeks at each check independently: in this process if possible, and in one call to Redis for the
    /// others.
    pub(crate) async fn peek_each(&self, checks: &[Check<'_>], deadline: Deadline) -> Vec<CheckResult> {
        let peek = |check: &Check<'_>| {
            if check.is_postpaid {
                return None;
            }
            let key = RedisKey::encode(check.key);
            with_strategy!(check.limit, |S, limit| {
                let take = KeySpend::new(&key, limit, check.cost);
                let found = self.limiter::<S>().shared.peek(take);
                found.map(|found| S::core(&found.decision(limit)))
            })
        };
        let known: Vec<Option<Decision>> = checks.iter().map(peek).collect();
        let unknown = checks.iter().zip(&known).filter(|(_, known)| known.is_none());
        let unknown: Vec<Check<'_>> = unknown.map(|(check, _)| *check).collect();
        let mut peeked = match unknown.is_empty() {
            true => Vec::new().into_iter(),
            false => self.redis.peek_each(&unknown, deadline).await.into_iter(),
        };
        known.into_iter().filter_map(|known| known.map(Ok).or_else(|| peeked.next())).collect()
    }

    /// Decides the checks of a request that another check denies: one that would be admitted is charged nothing,
    /// so its decision says what is left.
    pub(super) async fn peek_uncharged(&self, checks: &[Check<'_>], deadline: Deadline) -> Vec<CheckResult> {
        let mut peeked = self.peek_each(checks, deadline).await;
        let is_allowed = |result: &CheckResult| result.as_ref().is_ok_and(Decision::is_allowed);
        let allowed = || checks.iter().zip(peeked.iter()).filter(|(_, result)| is_allowed(result));
        let usage: Vec<Check<'_>> = allowed().map(|(check, _)| check.usage()).collect();
        let usage = self.peek_each(&usage, deadline).await;
        for (result, usage) in peeked.iter_mut().filter(|result| is_allowed(result)).zip(usage) {
            if is_allowed(&usage) {
                *result = usage;
            }
        }
        peeked
    }

    /// Takes the checks of a request. Returns a result for each.
    pub(crate) async fn take(
        &self,
        request: TakeRequest<'_>,
    ) -> Result<TakeResponse<HybridReceipt>, TrypemaError> {
        let started = self.redis.started();
        let mut items = self.items(request.checks, CountCall::Yes)?;
        if !self.apply_denials(&mut items) {
            if self.take_in_redis(&mut items, request).await {
                self.take_leased(&mut items, request).await;
            } else {
                self.report_denied(&items);
            }
        }
        Ok(self.respond(items, started))
    }

    /// Takes all checks or none, if that needs no waiting; `None` if it does.
    #[cfg(feature = "rules")]
    pub(crate) fn try_take(
        &self,
        checks: &[Check<'_>],
    ) -> Option<Result<TakeResponse<HybridReceipt>, TrypemaError>> {
        let started = self.redis.started();
        let mut items = match self.items(checks, CountCall::No) {
            Ok(items) => items,
            Err(error) => return Some(Err(error)),
        };
        if self.apply_denials(&mut items) {
            self.count_calls(&items);
            return Some(Ok(self.respond(items, started)));
        }
        if items.iter().any(|item| matches!(item.decided_by, DecidedBy::Redis)) {
            return None;
        }
        for index in 0..items.len() {
            let taken = self.try_spend(&mut items[index]);
            if taken.is_none() {
                self.unreport(&items);
                self.restore(&mut items);
                return None;
            }
            if taken == Some(false) {
                self.restore(&mut items);
                self.report_leased_usage(&mut items);
                self.count_calls(&items);
                return Some(Ok(self.respond(items, started)));
            }
        }
        self.count_calls(&items);
        Some(Ok(self.respond(items, started)))
    }

    /// Removes decided checks from the calls to report, because the whole request will be tried again.
    #[cfg(feature = "rules")]
    fn unreport(&self, items: &[CheckItem<'_>]) {
        for item in items.iter().filter(|item| item.decision.is_some()) {
            with_strategy!(item.check.limit, |S, _limit| {
                let table = &self.limiter::<S>().shared.table;
                table.with(&item.key, |entry| entry.holding.unreport(item.check.cost));
            });
        }
    }

    /// Counts the checks in their keys' demand.
    #[cfg(feature = "rules")]
    fn count_calls(&self, items: &[CheckItem<'_>]) {
        for item in items.iter().filter(|item| !item.check.is_postpaid) {
            with_strategy!(item.check.limit, |S, _limit| {
                let shared = &self.limiter::<S>().shared;
                let now = shared.instance.clock.now();
                shared.table.with(&item.key, |entry| entry.holding.count(now, item.check.cost));
            });
        }
    }

    /// Converts the items to a response. Notifies the observer of the decisions of this process; the Redis
    /// provider has reported its own.
    fn respond(&self, items: Vec<CheckItem<'_>>, started: Option<Timestamp>) -> TakeResponse<HybridReceipt> {
        for item in items.iter().filter(|item| !matches!(item.decided_by, DecidedBy::Redis)) {
            with_strategy!(item.check.limit, |S, _limit| {
                let redis = self.limiter::<S>().redis();
                redis.notify_decision(&item.key, item.check.cost, started, item.decision);
            });
        }
        let decisions = items.iter().map(|item| item.decision).collect();
        let mut response = TakeResponse::of_decisions(decisions);
        for (index, item) in items.into_iter().enumerate() {
            response.receipts.push(item.receipt);
            response.failures.extend(item.failure.map(|error| Failed { index, error }));
        }
        response.without_unspent_receipts()
    }
}
