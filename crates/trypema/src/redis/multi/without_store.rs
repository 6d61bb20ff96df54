//! Decides checks while Redis is unreachable, for the failure policy of rules and middleware.

use super::super::fallback::OnFailure;
use super::super::key::RedisKey;
use super::super::key_spend::KeySpend;
use super::super::provider::RedisRateLimiterProvider;
use crate::check::{Check, DecideRequest};
use crate::decision::Decision;
use crate::provider::{OnStoreFailure, SubstituteReservation};
use crate::strategy::{Effect, RecordedUnits, Strategy, with_strategy};

impl RedisRateLimiterProvider {
    /// Returns whether the request of a failed check with this policy continues. `None` is the policy that the limiter was
    /// built with.
    pub(crate) fn may_fail(&self, policy: Option<OnStoreFailure>) -> bool {
        matches!(self.policy(policy), OnFailure::Allow | OnFailure::Local { .. })
    }

    /// Decides a check. Returns `None` if the policy is to return the error.
    pub(crate) fn decide_without_store(
        &self,
        request: &DecideRequest<'_>,
        policy: Option<OnStoreFailure>,
    ) -> Option<Decision> {
        let (check, policy) = (&request.check, self.policy(policy));
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, limit| {
            let limiter = self.limiter::<S>();
            let call = KeySpend { key: &key, limit, spend: request.spend() };
            let decision = S::core(&limiter.fallback.decide(policy, request.effect, call)?);
            if request.effect == Effect::Take {
                limiter.notify_decision(&key, check.cost, limiter.started(), Some(decision));
            }
            Some(decision)
        })
    }

    /// Decides a check of a reservation that this process keeps. Returns `None` if the policy is to return the error.
    pub(crate) fn reserve_without_store(
        &self,
        check: &Check<'_>,
        policy: Option<OnStoreFailure>,
    ) -> Option<SubstituteReservation> {
        let (key, policy) = (RedisKey::encode(check.key), self.policy(policy));
        with_strategy!(check.limit, |S, limit| {
            let call = KeySpend { key: &key, limit, spend: check.spend() };
            let (decision, charged) = self.limiter::<S>().fallback.reserve(policy, call)?;
            Some(SubstituteReservation { decision, charged })
        })
    }

    /// Sets the cost of a check that [`reserve_without_store`](Self::reserve_without_store) has charged.
    pub(crate) fn settle_without_store(
        &self,
        check: &Check<'_>,
        charged: RecordedUnits,
        policy: Option<OnStoreFailure>,
    ) {
        let (key, policy) = (RedisKey::encode(check.key), self.policy(policy));
        with_strategy!(check.limit, |S, limit| {
            let call = KeySpend::new(&key, limit, check.cost);
            self.limiter::<S>().fallback.settle(policy, call, charged);
        })
    }

    /// Refunds units that were counted in this process because the store had failed. Returns `None` if the policy counts
    /// nothing here.
    pub(crate) fn refund_without_store(
        &self,
        check: &Check<'_>,
        policy: Option<OnStoreFailure>,
    ) -> Option<u64> {
        let policy = self.policy(policy);
        matches!(policy, OnFailure::Local { .. }).then(|| self.refund_fallback(check, policy))
    }

    /// Refunds units that were counted in this process and that Redis has not been charged for.
    pub(crate) fn refund_fallback(&self, check: &Check<'_>, policy: OnFailure) -> u64 {
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, limit| {
            let call = KeySpend::new(&key, limit, check.cost);
            self.limiter::<S>().fallback.refund(policy, call)
        })
    }

    /// Forgets the units of a counter that was reset: Redis must not be charged for them.
    pub(crate) fn forget_fallback(&self, check: &Check<'_>) {
        let key = RedisKey::encode(check.key);
        with_strategy!(check.limit, |S, _limit| self.limiter::<S>().fallback.forget(&key));
    }

    pub(crate) fn policy(&self, policy: Option<OnStoreFailure>) -> OnFailure {
        match policy {
            None => self.store.on_failure(),
            Some(OnStoreFailure::Error) => OnFailure::Fail,
            Some(OnStoreFailure::Allow) => OnFailure::Allow,
            Some(OnStoreFailure::Deny) => OnFailure::Deny,
        }
    }
}
