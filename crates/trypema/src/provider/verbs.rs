//! The verbs, each with its way on every provider.

mod decide;
#[cfg(feature = "rules")]
mod refund;
#[cfg(feature = "rules")]
mod reservations;
#[cfg(feature = "rules")]
mod reset;
#[cfg(feature = "rules")]
mod take;

#[cfg(feature = "rules")]
pub(crate) use refund::RefundRequest;
#[cfg(feature = "rules")]
pub(crate) use reset::ResetRequest;

/// What the verbs need for their way in Redis.
#[cfg(feature = "_redis")]
#[cfg_attr(not(feature = "rules"), allow(unused_imports, reason = "only rules have these verbs"))]
mod in_redis {
    pub(super) use crate::check::Deadline;
    pub(super) use crate::error::TrypemaError;
    pub(super) use crate::hybrid::HybridRateLimiterProvider as Hybrid;
    #[cfg(feature = "rules")]
    pub(super) use crate::provider::MaybeReady;
    pub(super) use crate::redis::{
        CheckReply, CheckRequest, RedisFailure, RedisRateLimiterProvider as Redis, all, verb,
    };
}
