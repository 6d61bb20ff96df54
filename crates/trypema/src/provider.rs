//! The verbs that rules, middleware and the server call on any provider.
//!
//! A verb is a type: its arguments, its result, and how each provider runs it ([`verbs`]; `redis/verb.rs` has its row in
//! the scripts). A [`Provider`] runs it on single counters, each by itself ([`Verb`]), or on several, all or nothing
//! ([`AtomicVerb`]). The result of each check is a decision, or the failure of the store.
//!
//! A provider knows nothing about rules. [`failure_policy`] is the layer above it, and decides the failed checks in
//! the same way for every verb.
#![cfg_attr(
    not(all(feature = "_redis", feature = "rules")),
    allow(dead_code, reason = "counters in this process never fail, and only rules choose a provider")
)]

#[cfg(feature = "rules")]
mod any;
#[cfg(feature = "rules")]
pub(crate) mod failure_policy;
mod verbs;

use crate::check::Check;
#[cfg(feature = "_redis")]
use crate::decision::Decision;
#[cfg(feature = "rules")]
use crate::local::LocalRateLimiterProvider;
#[cfg(feature = "_redis")]
use crate::redis::{CheckReply, CheckRequest, RedisFailure, RedisRateLimiterProvider};
#[cfg(all(feature = "_redis", feature = "rules"))]
pub(crate) use any::MaybeReady;
#[cfg(feature = "rules")]
pub use any::OnStoreFailure;
#[cfg(feature = "rules")]
pub(crate) use any::{AnyReceipt, AtomicResult, AtomicVerb, Provider, SubstituteReservation};
#[cfg(feature = "rules")]
pub(crate) use verbs::{RefundRequest, ResetRequest};

/// A verb on single counters: its arguments for one of them.
pub(crate) trait Verb: Copy + Send + Sync {
    /// Its result, unless the store fails.
    type Output: Send;

    /// Returns the counter and the cost.
    fn check(&self) -> &Check<'_>;

    /// Runs it in this process.
    #[cfg(feature = "rules")]
    fn run_local(&self, local: &LocalRateLimiterProvider) -> Self::Output;

    /// Returns the request to the scripts of Redis; the result if Redis has nothing to do.
    #[cfg(feature = "_redis")]
    fn request(&self, redis: &RedisRateLimiterProvider) -> Result<CheckRequest, Self::Output>;

    /// Reads the reply of the scripts.
    #[cfg(feature = "_redis")]
    fn read(
        &self,
        redis: &RedisRateLimiterProvider,
        reply: &CheckReply,
    ) -> Result<Self::Output, RedisFailure>;

    /// Returns the decision of which Redis notifies the observer.
    #[cfg(feature = "_redis")]
    fn observed<'o>(&self, output: &'o Self::Output) -> Option<&'o Decision> {
        let _ = output;
        None
    }

    /// Runs several with leases. Most need none, and run in Redis.
    #[cfg(all(feature = "_redis", feature = "rules"))]
    fn run_hybrid<'a>(
        verbs: &'a [Self],
        hybrid: &'a crate::hybrid::HybridRateLimiterProvider,
        deadline: crate::check::Deadline,
    ) -> MaybeReady<'a, Vec<Result<Self::Output, crate::TrypemaError>>> {
        MaybeReady::pending(hybrid.redis().each(verbs, deadline))
    }
}
