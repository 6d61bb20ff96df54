//! A borrowed handle to one key.

use super::limiter::LocalLimiter;
use super::map::HashedKey;
use crate::strategy::Strategy;

/// A handle to one key of a limiter. It hashes the key once.
///
/// ```
/// use std::time::Duration;
/// use trypema::{RateLimiter, TokenBucketLimits, TokenLimit};
///
/// let rl = RateLimiter::builder().build()?;
/// let limits = TokenBucketLimits::from(TokenLimit::new(100, Duration::from_secs(3600))?);
/// let ann = rl.local().token_bucket().key("ann");
/// let admitted = (0..200).filter(|_| ann.take(&limits, 1).is_allowed()).count();
/// assert_eq!(admitted, 100);
/// # Ok::<(), trypema::TrypemaError>(())
/// ```
#[derive(Debug)]
pub struct LocalKeyHandle<'a, S: Strategy> {
    limiter: &'a LocalLimiter<S>,
    text: &'a str,
    key: HashedKey<'a>,
}

impl<'a, S: Strategy> LocalKeyHandle<'a, S> {
    pub(super) fn new(limiter: &'a LocalLimiter<S>, text: &'a str) -> Self {
        Self { limiter, text, key: limiter.map.hash_key(text) }
    }

    /// Takes like [`LocalLimiter::take`].
    #[inline(always)]
    pub fn take<'l>(&self, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        let limiter = self.limiter;
        if limiter.observer.is_some() {
            return limiter.take(self.text, limit, cost);
        }
        let shard = &mut *limiter.map.shard(self.key.hash);
        if let Some(state) = shard.find(self.key.hash, &self.key.key) {
            return limiter.take_known(state, limit, cost).decision(limit);
        }
        limiter.take_new(shard, &self.key, limit, cost).decision(limit)
    }

    /// Peeks like [`LocalLimiter::peek`].
    pub fn peek<'l>(&self, limit: &'l S::Limit, cost: u64) -> S::Decision<'l> {
        self.limiter.peek(self.text, limit, cost)
    }

    /// Resets like [`LocalLimiter::reset`].
    pub fn reset(&self) -> bool {
        self.limiter.reset(self.text)
    }

    /// Returns the name of the key.
    pub fn name(&self) -> &str {
        self.text
    }
}
