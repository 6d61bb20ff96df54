//! The operations that only the abuse strategy has: `check`, and blocks set by the operator.

use std::time::Duration;

use super::limiter::LocalLimiter;
use crate::decision::{BlockScope, LimiterDecision};
use crate::strategy::{Abuse, AbuseLimit};

impl LocalLimiter<Abuse> {
    /// Records one attempt, and returns the decision as a [`LimiterDecision`].
    ///
    /// To count failures only, call [`usage`](LocalLimiter::usage) before the attempt, which denies only
    /// during a block, and `check` after the attempt has failed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trypema::{AbuseLimit, AbuseTier, LimiterDecision, RateLimiter};
    ///
    /// let rl = RateLimiter::builder().build()?;
    /// let limit = AbuseLimit::new(
    ///     AbuseTier::new(Duration::from_secs(60), 3, Duration::from_secs(600))?,
    ///     AbuseTier::new(Duration::from_secs(3600), 10, Duration::from_secs(86_400))?,
    /// );
    /// let abuse = rl.local().abuse();
    /// let log_in = |password: &str| {
    ///     if !abuse.usage("ann", &limit).is_allowed() {
    ///         return false;
    ///     }
    ///     let is_right = password == "secret";
    ///     if !is_right {
    ///         abuse.check("ann", &limit);
    ///     }
    ///     is_right
    /// };
    /// assert!(log_in("secret") && !log_in("1234") && !log_in("0000") && log_in("secret"));
    /// assert!(!log_in("1111"), "the third failure");
    /// assert!(!log_in("secret"), "blocks for ten minutes");
    /// # Ok::<(), trypema::TrypemaError>(())
    /// ```
    pub fn check(&self, key: &str, limit: &AbuseLimit) -> LimiterDecision {
        LimiterDecision::from(&self.take(key, limit, 1))
    }

    /// Blocks `key` for at least `duration`, whatever it has done. A block that lasts longer stays in force.
    /// A block set by this call is kept even beyond `max_keys`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trypema::{BlockScope, RateLimiter};
    ///
    /// let rl = RateLimiter::builder().build()?;
    /// rl.local().abuse().block("mallory", Duration::from_secs(3600), BlockScope::Long);
    /// assert!(rl.local().abuse().unblock("mallory"));
    /// # Ok::<(), trypema::TrypemaError>(())
    /// ```
    pub fn block(&self, key: &str, duration: Duration, scope: BlockScope) {
        let key = self.map.hash_key(key);
        let block_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let shard = &mut *self.map.shard(key.hash);
        let now = self.clock.now();
        match shard.find(key.hash, &key.key) {
            Some(state) => state.block(now, block_us, scope),
            None => {
                // The key may be blocked already, by a state that it shares because there was no room.
                let mut state = shard.start_under_any_limit(now);
                state.block(now, block_us, scope);
                self.map.insert_always(shard, &key, state);
            }
        }
    }

    /// Ends all blocks of `key` and forgets its attempts. Returns whether it was blocked. Keys that share a
    /// state because there is no room cannot be unblocked individually.
    pub fn unblock(&self, key: &str) -> bool {
        let key = self.map.hash_key(key);
        let shard = &mut *self.map.shard(key.hash);
        let now = self.clock.now();
        shard.void_receipts();
        shard.find(key.hash, &key.key).is_some_and(|state| state.unblock(now))
    }
}
