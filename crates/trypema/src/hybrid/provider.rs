//! `rl.hybrid()`: the six strategies, shared through Redis and decided here.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::hub::{Errand, Hub};
use super::limiter::Limiter;
use super::seeds::{AbsoluteHybridRateLimiter, SuppressedHybridRateLimiter};
use super::shared::Shared;
use super::sync;
use crate::clock::Source;
use crate::redis::{RedisRateLimiterProvider, Windows, all};
use crate::strategy::{Abuse, FixedWindow, SlidingWindow, TokenBucket};

/// The strategies that are shared through Redis and decided in this process where it holds a lease.
#[derive(Debug)]
pub struct HybridRateLimiterProvider {
    pub(super) inner: Arc<Inner>,
    pub(super) redis: RedisRateLimiterProvider,
    pub(super) absolute: AbsoluteHybridRateLimiter,
    pub(super) suppressed: SuppressedHybridRateLimiter,
    pub(super) token_bucket: Limiter<TokenBucket>,
    pub(super) sliding_window: Limiter<SlidingWindow>,
    pub(super) fixed_window: Limiter<FixedWindow>,
    pub(super) abuse: Limiter<Abuse>,
}

/// What the background loop works for.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) hub: Arc<Hub>,
    absolute: Arc<Shared<crate::strategy::Absolute>>,
    suppressed: Arc<Shared<crate::strategy::Suppressed>>,
    token_bucket: Arc<Shared<TokenBucket>>,
    sliding_window: Arc<Shared<SlidingWindow>>,
    fixed_window: Arc<Shared<FixedWindow>>,
    abuse: Arc<Shared<Abuse>>,
}

/// What the hybrid provider is doing, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HybridStats {
    /// Units of all keys that this instance holds: counted by everyone, and not spent yet.
    pub held_units: u64,
    /// How many instances there are, if [`keep_in_sync`](HybridRateLimiterProvider::keep_in_sync) has learned it.
    pub instances: Option<NonZeroU32>,
    /// How often Redis was asked for a lease since the start.
    pub leases_asked: u64,
}

/// Runs `$act` on every strategy of `$inner`.
macro_rules! each {
    ($inner:expr, |$shared:ident| $act:expr) => {{
        let inner = $inner;
        let $shared = &inner.absolute;
        $act;
        let $shared = &inner.suppressed;
        $act;
        let $shared = &inner.token_bucket;
        $act;
        let $shared = &inner.sliding_window;
        $act;
        let $shared = &inner.fixed_window;
        $act;
        let $shared = &inner.abuse;
        $act;
    }};
}

impl HybridRateLimiterProvider {
    pub(crate) fn new(
        redis: &RedisRateLimiterProvider,
        (clock, sync_interval): (Source, Duration),
        windows: Windows,
    ) -> Self {
        let hub = Arc::new(Hub::new(clock, sync_interval));
        let inner = Arc::new(Inner {
            absolute: Shared::new((**redis.absolute()).clone(), Arc::clone(&hub)),
            suppressed: Shared::new((**redis.suppressed()).clone(), Arc::clone(&hub)),
            token_bucket: Shared::new(redis.token_bucket().clone(), Arc::clone(&hub)),
            sliding_window: Shared::new(redis.sliding_window().clone(), Arc::clone(&hub)),
            fixed_window: Shared::new(redis.fixed_window().clone(), Arc::clone(&hub)),
            abuse: Shared::new(redis.abuse().clone(), Arc::clone(&hub)),
            hub,
        });
        Self {
            absolute: AbsoluteHybridRateLimiter::new(Limiter::of(&inner.absolute), windows),
            suppressed: SuppressedHybridRateLimiter::new(Limiter::of(&inner.suppressed), windows),
            token_bucket: Limiter::of(&inner.token_bucket),
            sliding_window: Limiter::of(&inner.sliding_window),
            fixed_window: Limiter::of(&inner.fixed_window),
            abuse: Limiter::of(&inner.abuse),
            redis: redis.clone(),
            inner,
        }
    }

    /// Sliding windows with strict limits.
    pub fn absolute(&self) -> &AbsoluteHybridRateLimiter {
        &self.absolute
    }

    /// Sliding windows that shed load by degrees.
    pub fn suppressed(&self) -> &SuppressedHybridRateLimiter {
        &self.suppressed
    }

    /// Token buckets with one or more limits.
    pub fn token_bucket(&self) -> &Limiter<TokenBucket> {
        &self.token_bucket
    }

    /// Sliding-window counters.
    pub fn sliding_window(&self) -> &Limiter<SlidingWindow> {
        &self.sliding_window
    }

    /// Fixed windows.
    pub fn fixed_window(&self) -> &Limiter<FixedWindow> {
        &self.fixed_window
    }

    /// Attempt limits with blocks. Every attempt is counted in Redis; a block is remembered.
    pub fn abuse(&self) -> &Limiter<Abuse> {
        &self.abuse
    }

    /// The background work: to be spawned on the async runtime, once for a [`RateLimiter`](crate::RateLimiter), which it
    /// ends with. It asks for leases before they run out, gives back what is left of those that have ended, and learns how
    /// many instances there are.
    ///
    /// Limits are correct without it; but then calls wait for Redis whenever a lease has run out, and what is left of one
    /// is given back only with the next call for its key.
    pub fn keep_in_sync(&self) -> impl Future<Output = ()> + Send + use<> {
        sync::run(Arc::downgrade(&self.inner), Arc::clone(&self.inner.hub))
    }

    /// Gives back everything that is held: to be called when an instance stops, after its last request. Waits for leases that
    /// are under way. Where Redis does not answer, each step takes as long as the deadline of a call, and what cannot be given back
    /// stays counted until it leaves by itself.
    pub async fn release(&self) {
        each!(&self.inner, |shared| shared.answers().await);
        let mut errands: Vec<Errand> = Vec::new();
        each!(&self.inner, |shared| shared.release(&mut errands));
        errands.push(self.inner.sign(self.inner.hub.leaver()));
        all(errands).await;
    }

    /// What it is doing now. Looks at every key that is held, so it is for metrics and not for every call.
    pub fn stats(&self) -> HybridStats {
        let mut held_units = 0;
        each!(&self.inner, |shared| held_units += shared.held());
        let instances = self.inner.fixed_window.redis.instances();
        HybridStats { held_units, instances, leases_asked: self.inner.hub.asked() }
    }
}

impl Inner {
    /// What was left to the background since.
    pub(super) fn waiting_errands(&self, into: &mut Vec<Errand>) {
        each!(self, |shared| shared.waiting_errands(into));
    }

    /// What there is to do about keys that nobody calls for.
    pub(super) fn chores(&self, into: &mut Vec<Errand>) {
        each!(self, |shared| shared.chores(into));
    }

    /// Says that this instance lives.
    pub(super) fn sign_of_life(&self) -> Errand {
        self.sign(self.hub.sharer())
    }

    fn sign(&self, sharer: crate::redis::Sharer) -> Errand {
        let redis = self.fixed_window.redis.clone();
        Box::pin(async move {
            // If Redis is away the last known number is used.
            let _ = redis.sign_of_life(sharer).await;
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.hub.ring();
    }
}
