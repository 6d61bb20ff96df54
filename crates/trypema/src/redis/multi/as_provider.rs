//! The [`Provider`] implementation for Redis, which rules and middleware use.

use super::super::fallback::OnFailure;
use super::super::key::RedisKey;
use super::super::protocol::{CheckRequest, Verb};
use super::super::provider::RedisRateLimiterProvider;
use super::super::verb_call::{VerbArgs, VerbCall};
use super::{CheckWithVerb, KeyedCheck};
use crate::check::{Check, CheckResult, Deadline, IfUnreachable, TakeRequest, TakeResponse};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::provider::{
    AnyReceipt, CheckVerb, Fallback, MaybeReady, OnStoreFailure, Provider, RecordMode, RecordRequest,
    RefundRequest, RefundResult, SubstituteReservation, TakeResult,
};
use crate::reservation::{
    HoldersResult, RenewRequest, RenewResult, ReserveRequest, ReserveResponse, SettleRequest, SettleResult,
};
use crate::strategy::RecordedUnits;
use crate::strategy::{Payment, with_strategy};

impl Provider for RedisRateLimiterProvider {
    fn deadline(&self) -> Deadline {
        self.deadline_from_now()
    }

    fn is_immediate(&self) -> bool {
        false
    }

    fn take_all<'a>(&'a self, request: TakeRequest<'a>) -> MaybeReady<'a, TakeResult> {
        if request.checks.is_empty() && request.independent.is_empty() {
            return MaybeReady::Ready(Ok(TakeResponse::empty()));
        }
        MaybeReady::pending(async move { Ok(self.take(request).await?.map_receipts(AnyReceipt::Redis)) })
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
        MaybeReady::pending(async move {
            let with_verb = |record: &RecordRequest<'a>| {
                let keyed = KeyedCheck::new(record.check);
                match record.mode {
                    RecordMode::Take => CheckWithVerb { keyed, verb: Verb::Take },
                    RecordMode::Debit => {
                        let keyed = KeyedCheck { payment: Payment::Debit, ..keyed };
                        CheckWithVerb { keyed, verb: Verb::Take }
                    }
                    RecordMode::DeniedElsewhere => CheckWithVerb { keyed, verb: Verb::DeniedElsewhere },
                }
            };
            self.send_each(records.iter().map(with_verb).collect(), deadline).await
        })
    }

    fn refund_all<'a>(
        &'a self,
        refunds: &'a [RefundRequest<'a>],
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<RefundResult>> {
        MaybeReady::pending(self.refund_checks(refunds, deadline))
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

    fn reserve<'a>(
        &'a self,
        request: ReserveRequest<'a>,
    ) -> MaybeReady<'a, Result<ReserveResponse, TrypemaError>> {
        if request.take.checks.is_empty() && request.take.independent.is_empty() {
            return MaybeReady::Ready(Ok(ReserveResponse::empty()));
        }
        MaybeReady::pending(self.reserve_by_name(request))
    }

    fn settle_all<'a>(
        &'a self,
        settlements: &'a [SettleRequest<'a>],
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<SettleResult>> {
        MaybeReady::pending(self.settle_each(settlements, deadline))
    }

    fn renew_all<'a>(
        &'a self,
        renewals: &'a [RenewRequest<'a>],
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<RenewResult>> {
        MaybeReady::pending(self.renew_each(renewals, deadline))
    }

    fn holders<'a>(&'a self, check: Check<'a>, deadline: Deadline) -> MaybeReady<'a, HoldersResult> {
        MaybeReady::pending(self.holders_of(check, deadline))
    }

    fn if_unreachable(&self, policy: Option<OnStoreFailure>) -> IfUnreachable {
        match self.policy(policy) {
            OnFailure::Fail | OnFailure::Deny => IfUnreachable::Stop,
            OnFailure::Allow | OnFailure::Local { .. } => IfUnreachable::Continue,
        }
    }

    fn decide_without_store(&self, fallback: Fallback<'_>) -> Option<Decision> {
        let check = &fallback.check;
        let (verb, payment) = match fallback.verb {
            CheckVerb::Take => (Verb::Take, check.payment()),
            CheckVerb::Debit => (Verb::Take, Payment::Debit),
            CheckVerb::Peek => (Verb::Peek, check.payment()),
            CheckVerb::Reserve => (Verb::Hold, check.payment()),
        };
        let args = VerbArgs::new(verb, check.cost).with_payment(payment);
        self.decide_without(check, args, self.policy(fallback.policy))
    }

    fn reserve_without_store(
        &self,
        check: &Check<'_>,
        policy: Option<OnStoreFailure>,
    ) -> Option<SubstituteReservation> {
        let (key, policy) = (RedisKey::encode(check.key), self.policy(policy));
        with_strategy!(check.limit, |S, limit| {
            let args = VerbArgs::new(Verb::Hold, check.cost).with_payment(check.payment());
            let fallback = &self.limiter::<S>().fallback;
            let (decision, charged) = fallback.reserve(policy, VerbCall::new(&key, limit, args))?;
            Some(SubstituteReservation { decision, charged })
        })
    }

    fn settle_without_store(
        &self,
        check: &Check<'_>,
        charged: RecordedUnits,
        policy: Option<OnStoreFailure>,
    ) {
        let (key, policy) = (RedisKey::encode(check.key), self.policy(policy));
        with_strategy!(check.limit, |S, limit| {
            let call = VerbCall::new(&key, limit, VerbArgs::new(Verb::Settle, check.cost));
            self.limiter::<S>().fallback.settle(policy, call, charged);
        })
    }

    fn refund_without_store(&self, check: &Check<'_>, policy: Option<OnStoreFailure>) -> Option<u64> {
        let policy = self.policy(policy);
        matches!(policy, OnFailure::Local { .. }).then(|| self.refund_fallback(check, policy))
    }
}

impl RedisRateLimiterProvider {
    async fn refund_checks(&self, refunds: &[RefundRequest<'_>], deadline: Deadline) -> Vec<RefundResult> {
        let keyed: Vec<KeyedCheck<'_>> = refunds.iter().map(|refund| KeyedCheck::new(refund.check)).collect();
        let requests =
            refunds.iter().zip(&keyed).map(|(refund, keyed)| self.request_for_refund(refund, keyed));
        let results = self.refund_each(requests, deadline).await;
        let refunded = refunds.iter().zip(&keyed).zip(results);
        let refunded = refunded.map(|((refund, keyed), result)| match refund.receipt {
            // Redis may have been charged for these units meanwhile. They stay spent then: they are
            // indistinguishable from other units.
            Some(AnyReceipt::Fallback) => Ok(self.refund_fallback(&refund.check, self.policy(None))),
            _ => result.map_err(|failure| self.report_failure(std::slice::from_ref(keyed), failure)),
        });
        refunded.collect()
    }

    /// Returns the request for a refund; `None` if Redis has nothing to refund.
    fn request_for_refund(&self, refund: &RefundRequest<'_>, keyed: &KeyedCheck<'_>) -> Option<CheckRequest> {
        let check = &refund.check;
        with_strategy!(check.limit, |S, limit| {
            let limiter = self.limiter::<S>();
            match refund.receipt {
                Some(AnyReceipt::Redis(receipt)) => limiter.refund_request(&keyed.key, limit, receipt),
                Some(_) => None,
                None => {
                    let args = VerbArgs::new(Verb::RefundUnits, check.cost);
                    Some(limiter.check_request(&keyed.key, Some(limit), args))
                }
            }
        })
    }

    /// Refunds units that were counted in this process and that Redis has not been charged for.
    fn refund_fallback(&self, check: &Check<'_>, policy: OnFailure) -> u64 {
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, limit| {
            let args = VerbArgs::new(Verb::RefundUnits, check.cost);
            self.limiter::<S>().fallback.refund(policy, VerbCall::new(&key, limit, args))
        })
    }

    fn policy(&self, policy: Option<OnStoreFailure>) -> OnFailure {
        match policy {
            None => self.store.on_failure(),
            Some(OnStoreFailure::Error) => OnFailure::Fail,
            Some(OnStoreFailure::Allow) => OnFailure::Allow,
            Some(OnStoreFailure::Deny) => OnFailure::Deny,
        }
    }
}
