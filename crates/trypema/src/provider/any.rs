//! The provider that an engine or a middleware was built with.

use std::pin::Pin;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Verb;
use crate::check::{Check, Deadline, DecideRequest, TakeResponse};
use crate::decision::Decision;
use crate::error::TrypemaError;
#[cfg(feature = "_redis")]
use crate::hybrid::HybridRateLimiterProvider;
use crate::local::LocalRateLimiterProvider;
#[cfg(feature = "_redis")]
use crate::redis::RedisRateLimiterProvider;
use crate::strategy::RecordedUnits;

/// A store of counters.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Provider<'p> {
    Local(&'p LocalRateLimiterProvider),
    #[cfg(feature = "_redis")]
    Redis(&'p RedisRateLimiterProvider),
    #[cfg(feature = "_redis")]
    Hybrid(&'p HybridRateLimiterProvider),
}

/// A verb on several counters, all or nothing. Its other checks are each taken independently.
pub(crate) trait AtomicVerb: Copy + Send {
    /// Identifies what was taken from one counter.
    type Receipt: Send;

    fn is_empty(&self) -> bool;

    fn run_local(self, local: &LocalRateLimiterProvider) -> AtomicResult<Self::Receipt>;

    #[cfg(feature = "_redis")]
    fn run_redis(
        self,
        redis: &RedisRateLimiterProvider,
    ) -> impl Future<Output = AtomicResult<Self::Receipt>> + Send;

    /// Runs it with leases, if it can be made of leased units.
    #[cfg(feature = "_redis")]
    fn run_hybrid<'a>(
        self,
        hybrid: &'a HybridRateLimiterProvider,
    ) -> MaybeReady<'a, AtomicResult<Self::Receipt>>
    where
        Self: 'a,
    {
        MaybeReady::pending(self.run_redis(hybrid.redis()))
    }
}

/// The result of an [`AtomicVerb`]. An `Err` means that its checks are invalid. A failure of the store is the result of each
/// check that it concerns.
pub(crate) type AtomicResult<R> = Result<TakeResponse<R>, TrypemaError>;

impl<'p> Provider<'p> {
    /// Returns the deadline of a request that starts now.
    pub(crate) fn deadline(self) -> Deadline {
        match self {
            Self::Local(_) => Deadline::NEVER,
            #[cfg(feature = "_redis")]
            Self::Redis(redis) => redis.deadline_from_now(),
            #[cfg(feature = "_redis")]
            Self::Hybrid(hybrid) => hybrid.redis().deadline_from_now(),
        }
    }

    /// Whether every verb returns [`MaybeReady::Ready`], because the store is in this process.
    pub(crate) fn is_immediate(self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// Runs a verb on several counters, all or nothing.
    pub(crate) fn all_or_nothing<'a, V: AtomicVerb + 'a>(
        self,
        verb: V,
    ) -> MaybeReady<'a, AtomicResult<V::Receipt>>
    where
        'p: 'a,
    {
        match self {
            Self::Local(local) => MaybeReady::Ready(verb.run_local(local)),
            #[cfg(feature = "_redis")]
            _ if verb.is_empty() => MaybeReady::Ready(Ok(TakeResponse::empty())),
            #[cfg(feature = "_redis")]
            Self::Redis(redis) => MaybeReady::pending(verb.run_redis(redis)),
            #[cfg(feature = "_redis")]
            Self::Hybrid(hybrid) => verb.run_hybrid(hybrid),
        }
    }

    /// Runs a verb on each counter by itself.
    pub(crate) fn each<'a, V: Verb>(
        self,
        verbs: &'a [V],
        deadline: Deadline,
    ) -> MaybeReady<'a, Vec<Result<V::Output, TrypemaError>>>
    where
        'p: 'a,
    {
        let _ = deadline;
        match self {
            Self::Local(local) => {
                MaybeReady::Ready(verbs.iter().map(|verb| Ok(verb.run_local(local))).collect())
            }
            #[cfg(feature = "_redis")]
            Self::Redis(redis) => MaybeReady::pending(redis.each(verbs, deadline)),
            #[cfg(feature = "_redis")]
            Self::Hybrid(hybrid) => V::run_hybrid(verbs, hybrid, deadline),
        }
    }

    /// Runs a verb on one counter.
    pub(crate) async fn one<V: Verb>(self, verb: V, deadline: Deadline) -> Result<V::Output, TrypemaError> {
        let missing = || Err(TrypemaError::InvalidChecks { reason: "internal error: no result".to_owned() });
        let results = self.each(std::slice::from_ref(&verb), deadline).wait().await;
        results.into_iter().next().unwrap_or_else(missing)
    }

    /// Returns whether the request of a failed check with this policy continues. `None` is the policy that the
    /// limiter was built with.
    pub(super) fn may_fail(self, policy: Option<OnStoreFailure>) -> bool {
        let _ = policy;
        #[cfg(feature = "_redis")]
        if let Some(redis) = self.redis() {
            return redis.may_fail(policy);
        }
        false
    }

    /// Decides a check whose store has failed. Returns `None` if the policy is to return the error.
    pub(super) fn decide_without_store(
        self,
        request: &DecideRequest<'_>,
        policy: Option<OnStoreFailure>,
    ) -> Option<Decision> {
        let _ = (request, policy);
        #[cfg(feature = "_redis")]
        return self.redis()?.decide_without_store(request, policy);
        #[cfg(not(feature = "_redis"))]
        None
    }

    /// Decides a check of a reservation whose store has failed. Returns `None` if the policy is to return the error.
    pub(super) fn reserve_without_store(
        self,
        check: &Check<'_>,
        policy: Option<OnStoreFailure>,
    ) -> Option<SubstituteReservation> {
        let _ = (check, policy);
        #[cfg(feature = "_redis")]
        return self.redis()?.reserve_without_store(check, policy);
        #[cfg(not(feature = "_redis"))]
        None
    }

    /// Sets the cost of a check that [`reserve_without_store`](Self::reserve_without_store) has charged.
    pub(crate) fn settle_without_store(
        self,
        check: &Check<'_>,
        charged: RecordedUnits,
        policy: Option<OnStoreFailure>,
    ) {
        let _ = (check, charged, policy);
        #[cfg(feature = "_redis")]
        if let Some(redis) = self.redis() {
            redis.settle_without_store(check, charged, policy);
        }
    }

    /// Refunds units that were counted in this process because the store had failed. Returns `None` if the
    /// policy counts nothing here.
    pub(super) fn refund_without_store(
        self,
        check: &Check<'_>,
        policy: Option<OnStoreFailure>,
    ) -> Option<u64> {
        let _ = (check, policy);
        #[cfg(feature = "_redis")]
        return self.redis()?.refund_without_store(check, policy);
        #[cfg(not(feature = "_redis"))]
        None
    }

    /// Returns the store that may fail.
    #[cfg(feature = "_redis")]
    fn redis(self) -> Option<&'p RedisRateLimiterProvider> {
        match self {
            Self::Local(_) => None,
            Self::Redis(redis) => Some(redis),
            Self::Hybrid(hybrid) => Some(hybrid.redis()),
        }
    }
}

/// The decision of a failure policy on a reservation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SubstituteReservation {
    pub(crate) decision: Decision,
    /// The units that the counters of this process recorded, if they counted any.
    pub(crate) charged: Option<RecordedUnits>,
}

/// A result that is available immediately, or a future. A future that is dropped before its first poll has
/// no effect.
pub(crate) enum MaybeReady<'a, T> {
    Ready(T),
    Pending(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T> MaybeReady<'a, T> {
    #[cfg(feature = "_redis")]
    pub(crate) fn pending(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self::Pending(Box::pin(future))
    }

    /// Returns the result if it is available immediately.
    pub(crate) fn ready(self) -> Option<T> {
        match self {
            Self::Ready(answer) => Some(answer),
            Self::Pending(_) => None,
        }
    }

    pub(crate) async fn wait(self) -> T {
        match self {
            Self::Ready(answer) => answer,
            Self::Pending(answer) => answer.await,
        }
    }
}

/// Identifies a take of any provider, so that it can be refunded once.
#[derive(Debug)]
pub(crate) enum AnyReceipt {
    Local(crate::local::LocalReceipt),
    #[cfg(feature = "_redis")]
    Redis(crate::redis::RedisReceipt),
    #[cfg(feature = "_redis")]
    Hybrid(crate::hybrid::HybridReceipt),
    /// The take was counted in this process, because the store had failed.
    Fallback,
}

/// The failure policy of one rule, in place of the one the limiter was built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreFailure {
    /// The request ends with an error.
    Error,
    /// The rule lets the request pass.
    Allow,
    /// The rule denies the request, and says why.
    Deny,
}
