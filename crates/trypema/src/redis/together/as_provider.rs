//! The [`Provider`] implementation for Redis, which rules and middleware use.

use super::super::ask::{Ask, Verb};
use super::super::key::RedisKey;
use super::super::key_call::{Asking, KeyCall};
use super::super::provider::RedisRateLimiterProvider;
use super::super::substitute::OnFailure;
use super::{Asked, Holds, Keyed};
use crate::check::{Check, CheckResult, Deadline, IfUnreachable, TakeRequest, TakeResponse};
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::provider::{
    Answer, Counting, Fallback, OnStoreFailure, Provider, Receipt, Record, Refund, Refunded, Spending, Taken,
};
use crate::strategy::with_strategy;

impl Provider for RedisRateLimiterProvider {
    fn deadline(&self) -> Deadline {
        self.deadline_from_now()
    }

    fn is_immediate(&self) -> bool {
        false
    }

    fn take_all<'a>(&'a self, request: TakeRequest<'a>) -> Answer<'a, Taken> {
        if request.together.is_empty() && request.alone.is_empty() {
            return Answer::Now(Ok(TakeResponse::empty()));
        }
        Answer::later(async move { Ok(self.take(request).await?.map_receipts(Receipt::Redis)) })
    }

    fn peek_all<'a>(&'a self, checks: &'a [Check<'a>], deadline: Deadline) -> Answer<'a, Vec<CheckResult>> {
        Answer::later(self.peek_each(checks, deadline))
    }

    fn record_all<'a>(
        &'a self,
        records: &'a [Record<'a>],
        deadline: Deadline,
    ) -> Answer<'a, Vec<CheckResult>> {
        Answer::later(async move {
            let verb_of = |record: &Record<'_>| match record.counting {
                Counting::Take => Verb::Take,
                Counting::Forgo => Verb::Forgo,
            };
            let takes =
                records.iter().map(|record| Asked { keyed: Keyed::new(record.check), verb: verb_of(record) });
            self.ask_each(takes.collect(), deadline).await
        })
    }

    fn refund_all<'a>(&'a self, refunds: &'a [Refund<'a>], deadline: Deadline) -> Answer<'a, Vec<Refunded>> {
        Answer::later(self.refund_checks(refunds, deadline))
    }

    fn reset<'a>(&'a self, check: Check<'a>, deadline: Deadline) -> Answer<'a, Result<bool, TrypemaError>> {
        Answer::later(async move {
            let key = RedisKey::encode(check.key);
            with_strategy!(check.limit, |S, _limit| {
                Holds::<S>::limiter(self).reset_until(deadline.until(), &key).await
            })
        })
    }

    fn if_unreachable(&self, policy: Option<OnStoreFailure>) -> IfUnreachable {
        match self.policy(policy) {
            OnFailure::Fail | OnFailure::Deny => IfUnreachable::Stop,
            OnFailure::Allow | OnFailure::Local { .. } => IfUnreachable::Continue,
        }
    }

    fn decide_without_store(&self, fallback: Fallback<'_>) -> Option<Decision> {
        let verb = match fallback.spending {
            Spending::Take => Verb::Take,
            Spending::Peek => Verb::Peek,
        };
        self.decide_without(&fallback.check, verb, self.policy(fallback.policy))
    }

    fn refund_without_store(&self, check: &Check<'_>, policy: Option<OnStoreFailure>) -> Option<u64> {
        let policy = self.policy(policy);
        matches!(policy, OnFailure::Local { .. }).then(|| self.refund_fallback(check, policy))
    }
}

impl RedisRateLimiterProvider {
    async fn refund_checks(&self, refunds: &[Refund<'_>], deadline: Deadline) -> Vec<Refunded> {
        let keyed: Vec<Keyed<'_>> = refunds.iter().map(|refund| Keyed::new(refund.check)).collect();
        let asks = refunds.iter().zip(&keyed).map(|(refund, keyed)| self.ask_to_refund(refund, keyed));
        let results = self.refund_each(asks, deadline).await;
        let refunded = refunds.iter().zip(&keyed).zip(results);
        let refunded = refunded.map(|((refund, keyed), result)| match refund.receipt {
            // Redis may have been charged for these units meanwhile. They stay spent then: they are
            // indistinguishable from other units.
            Some(Receipt::Fallback) => Ok(self.refund_fallback(&refund.check, self.policy(None))),
            _ => result.map_err(|failure| self.failed(std::slice::from_ref(keyed), failure)),
        });
        refunded.collect()
    }

    /// Returns the request for a refund; `None` if Redis has nothing to refund.
    fn ask_to_refund(&self, refund: &Refund<'_>, keyed: &Keyed<'_>) -> Option<Ask> {
        let check = &refund.check;
        with_strategy!(check.limit, |S, limit| {
            let limiter = Holds::<S>::limiter(self);
            match refund.receipt {
                Some(Receipt::Redis(receipt)) => limiter.ask_refund(&keyed.key, limit, receipt),
                Some(_) => None,
                None => {
                    let asking = Asking::new(Verb::RefundUnits, check.cost);
                    Some(limiter.ask(&keyed.key, Some(limit), asking))
                }
            }
        })
    }

    /// Refunds units that were counted in this process and that Redis has not been charged for.
    fn refund_fallback(&self, check: &Check<'_>, policy: OnFailure) -> u64 {
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, limit| {
            let asking = Asking::new(Verb::RefundUnits, check.cost);
            Holds::<S>::limiter(self).substitute.refund(policy, KeyCall::new(&key, limit, asking))
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
