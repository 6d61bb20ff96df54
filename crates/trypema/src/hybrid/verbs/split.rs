//! Splits one key into several, for keys with more traffic than one server of a Cluster can handle.

use std::num::NonZeroU32;

use super::limiter::HybridLimiter;
use crate::decision::Decision;
use crate::error::TrypemaError;
use crate::redis::RedisKey;
use crate::strategy::Leasable;

/// A limiter that splits each key into parts, which are on different servers of a Cluster.
///
/// Each part has its share of the limit, so together they never admit more than the whole. An instance
/// tries its own part first, and the others only when that denies the call. A call is denied if every part
/// denies it.
///
/// Besides the units that leases leave unused, splitting costs this: a call has to fit into one part, so up
/// to `cost - 1` units of each part can stay unused, and a cost above a part's share is never admitted. The
/// numbers in a decision are those of one part.
///
/// Part 0 of 8 of the key `a` is the key `a/0/8`; do not use that key for anything else. A different number
/// of parts means different keys, which start with nothing used.
///
/// ```no_run
/// use std::num::NonZeroU32;
/// use std::time::Duration;
/// use trypema::redis::RedisKey;
/// use trypema::{AbsoluteLimit, RateLimiter};
///
/// # async fn example(rl: &RateLimiter) -> Result<(), trypema::TrypemaError> {
/// let limit = AbsoluteLimit::per_window(60_000_000, Duration::from_secs(60))?;
/// let everyone = rl.hybrid().absolute().split(NonZeroU32::new(8).unwrap_or(NonZeroU32::MIN));
/// let decision = everyone.take(&RedisKey::try_from("everyone")?, &limit, 1).await?;
/// # let _ = decision;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Split<S: Leasable> {
    limiter: HybridLimiter<S>,
    parts: NonZeroU32,
}

/// One part of a key.
struct Part<L> {
    key: RedisKey,
    limit: L,
}

impl<S: Leasable> Split<S> {
    pub(super) fn new(limiter: HybridLimiter<S>, parts: NonZeroU32) -> Self {
        Self { limiter, parts }
    }

    /// Takes `cost` from the first part that admits it. Also returns an `Err` if the limit is too small for
    /// the number of parts, or if the strategy cannot be split.
    pub async fn take(&self, key: &RedisKey, limit: &S::Limit, cost: u64) -> Result<Decision, TrypemaError> {
        let mut denied = None;
        for part in self.parts(key, limit) {
            let part = part?;
            let decision = S::core(&self.limiter.take(&part.key, &part.limit, cost).await?);
            if decision.is_allowed() {
                return Ok(decision);
            }
            denied = sooner(denied, decision);
        }
        Ok(denied.unwrap_or_else(Decision::refused))
    }

    /// Same as [`Split::take`], without waiting. Returns `None` and spends nothing if the decision needs
    /// Redis.
    pub fn try_take(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
        cost: u64,
    ) -> Option<Result<Decision, TrypemaError>> {
        let mut denied = None;
        for part in self.parts(key, limit) {
            let part = match part {
                Ok(part) => part,
                Err(error) => return Some(Err(error)),
            };
            let decision = S::core(&self.limiter.try_take(&part.key, &part.limit, cost)?);
            if decision.is_allowed() {
                return Some(Ok(decision));
            }
            denied = sooner(denied, decision);
        }
        Some(Ok(denied.unwrap_or_else(Decision::refused)))
    }

    /// Returns the units of all parts of `key` that this instance has leased and not spent.
    pub fn held(&self, key: &RedisKey) -> u64 {
        (0..self.parts.get()).map(|index| self.limiter.held(&self.name(key, index))).sum()
    }

    /// Deletes the state of all parts of `key`. Returns whether there was any.
    pub async fn reset(&self, key: &RedisKey) -> Result<bool, TrypemaError> {
        let mut is_any = false;
        for index in 0..self.parts.get() {
            is_any |= self.limiter.reset(&self.name(key, index)).await?;
        }
        Ok(is_any)
    }

    /// Returns the parts of a key, this instance's own first.
    fn parts(
        &self,
        key: &RedisKey,
        limit: &S::Limit,
    ) -> impl Iterator<Item = Result<Part<S::Limit>, TrypemaError>> {
        let count = self.parts.get();
        let own = (self.limiter.shared.instance.id() % u64::from(count)) as u32;
        (0..count).map(move |turn| {
            let index = (own + turn) % count;
            let part = S::part(limit, index, count).ok_or(TrypemaError::InvalidSplit { parts: count })?;
            Ok(Part { key: self.name(key, index), limit: part })
        })
    }

    fn name(&self, key: &RedisKey, index: u32) -> RedisKey {
        key.suffixed(format_args!("/{index}/{}", self.parts))
    }
}

/// Returns the denial with the shorter wait.
fn sooner(one: Option<Decision>, other: Decision) -> Option<Decision> {
    let wait = |decision: &Decision| decision.retry_after_us().unwrap_or(u64::MAX);
    Some(one.filter(|one| wait(one) <= wait(&other)).unwrap_or(other))
}
