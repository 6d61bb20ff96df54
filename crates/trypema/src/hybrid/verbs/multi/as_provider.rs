//! The [`Provider`] implementation for hybrid, which rules and middleware use. It answers at once if leases
//! decide all checks.

use crate::check::{Check, CheckResult, Deadline, IfUnreachable, TakeRequest, TakeResponse};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::hybrid::HybridRateLimiterProvider;
use crate::hybrid::state::TakeArgs;
use crate::hybrid::verbs::decide::{Attempt, CountCall};
use crate::provider::{
    AnyReceipt, Fallback, MaybeReady, OnStoreFailure, Provider, RecordMode, RecordRequest, RefundRequest,
    RefundResult, SubstituteReservation, TakeResult,
};
use crate::redis::{RedisKey, all, both};
use crate::reservation::{
    HoldersResult, RenewRequest, RenewResult, ReserveRequest, ReserveResponse, SettleRequest, SettleResult,
};
use crate::strategy::RecordedUnits;
use crate::strategy::{Strategy, with_strategy};

impl Provider for HybridRateLimiterProvider {
    fn deadline(&self) -> Deadline {
        self.redis.deadline_from_now()
    }

    fn is_immediate(&self) -> bool {
        false
    }

    fn take_all<'a>(&'a self, request: TakeRequest<'a>) -> MaybeReady<'a, TakeResult> {
        if request.independent.is_empty()
            && let Some(taken) = self.try_take(request.checks)
        {
            return MaybeReady::Ready(taken.map(|taken| taken.map_receipts(AnyReceipt::Hybrid)));
        }
        MaybeReady::pending(async move {
            let independent =
                all(request.independent.iter().map(|check| self.take_one(check, request.deadline)));
            let (independent, taken) = both(independent, self.take(request)).await;
            Ok(TakeResponse { independent, ..taken?.map_receipts(AnyReceipt::Hybrid) })
        })
    }

    fn peek_all<'a>(
        &'a self,
        checks: &'a [Check<'a>],
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<CheckResult>> {
        MaybeReady::pending(self.peek_each(checks, deadline))
    }

    fn record_all<'a>(
        &'a self,
        records: &'a [RecordRequest<'a>],
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<CheckResult>> {
        let record = move |record: &'a RecordRequest<'a>| async move {
            match record.mode {
                RecordMode::Take => self.take_one(&record.check, deadline).await,
                RecordMode::Debit => self.record_in_redis(*record, deadline).await,
                RecordMode::DeniedElsewhere => self.record_denied_elsewhere(&record.check, deadline).await,
            }
        };
        MaybeReady::pending(async move { all(records.iter().map(record)).await })
    }

    fn refund_all<'a>(
        &'a self,
        refunds: &'a [RefundRequest<'a>],
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<RefundResult>> {
        MaybeReady::pending(async move {
            let refund = |refund: &'a RefundRequest<'a>| async move {
                match refund.receipt {
                    Some(AnyReceipt::Hybrid(receipt)) => {
                        self.refund_by_receipts(std::iter::once((&refund.check, receipt)), deadline).await
                    }
                    _ => {
                        Provider::refund_all(&self.redis, std::slice::from_ref(refund), deadline).wait().await
                    }
                }
            };
            all(refunds.iter().map(refund)).await.into_iter().flatten().collect()
        })
    }

    fn reset<'a>(
        &'a self,
        check: Check<'a>,
        deadline: Deadline,
    ) -> MaybeReady<'a, Result<bool, TrypemaError>> {
        MaybeReady::pending(async move {
            let key = RedisKey::encode(check.key);
            with_strategy!(check.limit, |S, _limit| {
                self.limiter::<S>().reset_with_deadline(deadline.until(), &key).await
            })
        })
    }

    /// Reserves in Redis: a reservation is never made of leased units, so that any server can settle it.
    fn reserve<'a>(
        &'a self,
        request: ReserveRequest<'a>,
    ) -> MaybeReady<'a, Result<ReserveResponse, TrypemaError>> {
        Provider::reserve(&self.redis, request)
    }

    fn settle_all<'a>(
        &'a self,
        settlements: &'a [SettleRequest<'a>],
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<SettleResult>> {
        MaybeReady::pending(async move {
            let settled = Provider::settle_all(&self.redis, settlements, deadline).wait().await;
            for (settlement, result) in settlements.iter().zip(&settled) {
                if result.as_ref().is_ok_and(|settled| settled.refunded > 0) {
                    self.forget_denials(&settlement.check);
                }
            }
            settled
        })
    }

    fn renew_all<'a>(
        &'a self,
        renewals: &'a [RenewRequest<'a>],
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<RenewResult>> {
        Provider::renew_all(&self.redis, renewals, deadline)
    }

    fn holders<'a>(&'a self, check: Check<'a>, deadline: Deadline) -> MaybeReady<'a, HoldersResult> {
        Provider::holders(&self.redis, check, deadline)
    }

    fn if_unreachable(&self, policy: Option<OnStoreFailure>) -> IfUnreachable {
        self.redis.if_unreachable(policy)
    }

    fn decide_without_store(&self, fallback: Fallback<'_>) -> Option<Decision> {
        self.redis.decide_without_store(fallback)
    }

    fn reserve_without_store(
        &self,
        check: &Check<'_>,
        policy: Option<OnStoreFailure>,
    ) -> Option<SubstituteReservation> {
        self.redis.reserve_without_store(check, policy)
    }

    fn settle_without_store(
        &self,
        check: &Check<'_>,
        charged: RecordedUnits,
        policy: Option<OnStoreFailure>,
    ) {
        self.redis.settle_without_store(check, charged, policy);
    }

    fn refund_without_store(&self, check: &Check<'_>, policy: Option<OnStoreFailure>) -> Option<u64> {
        self.redis.refund_without_store(check, policy)
    }
}

impl HybridRateLimiterProvider {
    /// Forgets the denials of a counter that this instance remembers.
    fn forget_denials(&self, check: &Check<'_>) {
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, _limit| {
            let table = &self.limiter::<S>().shared.table;
            table.with(&key, |entry| entry.holding.forget_denials());
        });
    }

    /// Takes one check independently. Applies no failure policy.
    async fn take_one(&self, check: &Check<'_>, deadline: Deadline) -> CheckResult {
        if check.is_postpaid {
            let record = RecordRequest { check: *check, mode: RecordMode::Take };
            return self.record_in_redis(record, deadline).await;
        }
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, limit| {
            let limiter = self.limiter::<S>();
            let started = limiter.redis().started();
            let attempt = Attempt { count: CountCall::Yes, deadline: Some(deadline.until()) };
            let found = limiter.take_outcome(TakeArgs { key: &key, limit, cost: check.cost }, attempt).await;
            let decision = found
                .map(|found| S::core(&found.decision::<S>(limit)))
                .map_err(|failure| limiter.redis().report_failure(&key, failure))?;
            limiter.redis().notify_decision(&key, check.cost, started, Some(decision));
            Ok(decision)
        })
    }

    /// Records a check that neither leases nor remembered denials apply to.
    async fn record_in_redis(&self, record: RecordRequest<'_>, deadline: Deadline) -> CheckResult {
        let recorded = Provider::record_all(&self.redis, std::slice::from_ref(&record), deadline);
        recorded.wait().await.into_iter().next().unwrap_or_else(|| Ok(Decision::refused()))
    }

    /// Records a check whose request another check denies. A check that is denied itself is taken, which
    /// records the denial. A check that would be allowed is only peeked at, so the suppressed strategy does
    /// not observe it.
    async fn record_denied_elsewhere(&self, check: &Check<'_>, deadline: Deadline) -> CheckResult {
        let peeked = self.peek_uncharged(std::slice::from_ref(check), deadline).await;
        match peeked.into_iter().next() {
            Some(Ok(peeked)) if peeked.is_allowed() => Ok(peeked),
            Some(Err(error)) => Err(error),
            _ => self.take_one(check, deadline).await,
        }
    }
}
