//! The local provider for rules and middleware. It answers immediately, and never fails.

use super::multi::TakeOptions;
use super::provider::LocalRateLimiterProvider;
use crate::check::{Check, CheckResult, Deadline, Receipts, TakeRequest, TakeResponse};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::provider::{
    AnyReceipt, MaybeReady, Provider, RecordMode, RecordRequest, RefundRequest, RefundResult, TakeResult,
};
use crate::reservation::{
    HoldersResult, RenewRequest, RenewResult, ReserveRequest, ReserveResponse, SettleRequest, SettleResult,
};
use crate::strategy::{Strategy, with_strategy};

impl Provider for LocalRateLimiterProvider {
    fn deadline(&self) -> Deadline {
        Deadline::NEVER
    }

    fn is_immediate(&self) -> bool {
        true
    }

    fn take_all<'a>(&'a self, request: TakeRequest<'a>) -> MaybeReady<'a, TakeResult> {
        let taken = match request.receipts {
            Receipts::Unwanted => Self::take_all(self, request.checks),
            Receipts::Wanted => Self::reserve_all(self, request.checks),
        };
        MaybeReady::Ready(taken.map(|taken| {
            let independent = request.independent.iter().map(|check| Ok(self.take_one(check))).collect();
            TakeResponse { independent, ..TakeResponse::from(taken).map_receipts(AnyReceipt::Local) }
        }))
    }

    fn peek_all<'a>(
        &'a self,
        checks: &'a [Check<'a>],
        _deadline: Deadline,
    ) -> MaybeReady<'a, Vec<CheckResult>> {
        MaybeReady::Ready(checks.iter().map(|check| Ok(self.peek_one(check))).collect())
    }

    fn record_all<'a>(
        &'a self,
        records: &'a [RecordRequest<'a>],
        _deadline: Deadline,
    ) -> MaybeReady<'a, Vec<CheckResult>> {
        let record = |record: &RecordRequest<'_>| match record.mode {
            RecordMode::Take => Ok(self.take_one(&record.check)),
            RecordMode::Debit => Ok(self.debit_one(&record.check)),
            RecordMode::DeniedElsewhere => Ok(self.record_denied_elsewhere(&record.check)),
        };
        MaybeReady::Ready(records.iter().map(record).collect())
    }

    fn refund_all<'a>(
        &'a self,
        refunds: &'a [RefundRequest<'a>],
        _deadline: Deadline,
    ) -> MaybeReady<'a, Vec<RefundResult>> {
        MaybeReady::Ready(refunds.iter().map(|refund| Ok(self.refund_one(refund))).collect())
    }

    fn reset<'a>(
        &'a self,
        check: Check<'a>,
        _deadline: Deadline,
    ) -> MaybeReady<'a, Result<bool, TrypemaError>> {
        MaybeReady::Ready(Ok(self.reset_with_reservations(&check)))
    }

    fn reserve<'a>(
        &'a self,
        request: ReserveRequest<'a>,
    ) -> MaybeReady<'a, Result<ReserveResponse, TrypemaError>> {
        MaybeReady::Ready(self.reserve_by_name(request))
    }

    fn settle_all<'a>(
        &'a self,
        settlements: &'a [SettleRequest<'a>],
        _deadline: Deadline,
    ) -> MaybeReady<'a, Vec<SettleResult>> {
        MaybeReady::Ready(settlements.iter().map(|settlement| Ok(self.settle(settlement))).collect())
    }

    fn renew_all<'a>(
        &'a self,
        renewals: &'a [RenewRequest<'a>],
        _deadline: Deadline,
    ) -> MaybeReady<'a, Vec<RenewResult>> {
        MaybeReady::Ready(renewals.iter().map(|renewal| Ok(self.renew(renewal))).collect())
    }

    fn holders<'a>(&'a self, check: Check<'a>, _deadline: Deadline) -> MaybeReady<'a, HoldersResult> {
        MaybeReady::Ready(Ok(self.holders_of(&check)))
    }
}

impl LocalRateLimiterProvider {
    pub(super) fn take_one(&self, check: &Check<'_>) -> Decision {
        with_strategy!(check.limit, |S, limit| {
            let limiter = self.limiter::<S>();
            S::core(&match check.is_postpaid {
                false => limiter.take(check.key, limit, check.cost),
                true => limiter.take_postpaid(check.key, limit, check.cost),
            })
        })
    }

    pub(super) fn debit_one(&self, check: &Check<'_>) -> Decision {
        with_strategy!(check.limit, |S, limit| {
            S::core(&self.limiter::<S>().debit(check.key, limit, check.cost))
        })
    }

    fn peek_one(&self, check: &Check<'_>) -> Decision {
        with_strategy!(check.limit, |S, limit| {
            let peeked = self.limiter::<S>().peek_at(check.key, limit, check.spend());
            S::core(&peeked.decision(limit))
        })
    }

    /// Records a check of a request that another check denies. If this check is denied as well, the denial is
    /// recorded as usual. If it would be admitted, only a strategy that counts such calls records it.
    pub(super) fn record_denied_elsewhere(&self, check: &Check<'_>) -> Decision {
        let started = self.observed_from();
        let decision = self.deny_elsewhere(check);
        if !decision.is_allowed() || check.limit.counts_denied_elsewhere() {
            self.notify_decisions(started, std::iter::once((check, &decision)));
        }
        decision
    }

    /// Same as [`record_denied_elsewhere`](Self::record_denied_elsewhere), without notifying the observer.
    pub(super) fn deny_elsewhere(&self, check: &Check<'_>) -> Decision {
        let options = TakeOptions { is_denied_elsewhere: true, ..TakeOptions::default() };
        let denied = self.take_many(std::slice::from_ref(check), options);
        denied.decisions.into_iter().next().unwrap_or(Decision::refused())
    }

    fn refund_one(&self, refund: &RefundRequest<'_>) -> u64 {
        let check = &refund.check;
        with_strategy!(check.limit, |S, limit| {
            let limiter = self.limiter::<S>();
            match refund.receipt {
                Some(AnyReceipt::Local(receipt)) => limiter.refund(check.key, limit, receipt),
                None => limiter.refund_units(check.key, limit, check.cost),
                Some(_) => 0,
            }
        })
    }
}
