//! The local provider as a subject.
#![allow(clippy::unwrap_used, reason = "a test that makes an invalid limit should stop right there")]

use std::sync::Arc;
use std::time::Duration;

use trypema::clock::ManualClock;
use trypema::local::LocalLimiter;
use trypema::strategy::{
    Absolute, Abuse, Concurrency, FixedWindow, SlidingWindow, Strategy, Suppressed, TokenBucket,
};
use trypema::{
    AbsoluteLimit, AbuseDecision, AbuseLimit, AbuseTier, CalendarWindow, ConcurrencyLimit, Decision,
    FixedWindowLimit, HardLimitFactor, LocalReceipt, RateGroupSizeMs, RateLimit, RateLimiter,
    SlidingWindowLimit, SuppressedDecision, SuppressedLimit, TokenBucketDecision, TokenBucketLimits,
    TokenLimit, WindowSizeSeconds,
};

use super::Detail;
use super::library::{LibrarySubject, Provides, micros};
use crate::model::{
    AbsoluteModel, AbuseModel, AlignedLimit, AttemptLimit, Bucket, CalendarLimit, CalendarModel,
    ConcurrencyModel, FixedWindowModel, HoldLimit, Model, ModelWindows, SheddingLimit, SlidingWindowModel,
    SuppressedModel, Tier, TokenBucketModel, WindowLimit,
};

/// A model whose strategy the library has.
pub trait LocalStrategy: Model {
    /// The strategy.
    type Strategy: Strategy;

    /// Returns the library's limiter of the strategy.
    fn limiter(limits: &RateLimiter) -> &LocalLimiter<Self::Strategy>;

    /// Returns the library's limit with these numbers.
    fn limit(limit: &Self::Limit) -> <Self::Strategy as Strategy>::Limit;

    /// Returns the fields that only decisions of this strategy have.
    fn detail(decision: &<Self::Strategy as Strategy>::Decision<'_>) -> Detail;
}

/// The local limiters of a strategy.
#[derive(Debug)]
pub struct OnLocal<M> {
    limits: RateLimiter,
    strategy: std::marker::PhantomData<M>,
}

/// A subject with its own limiter and clock.
pub type LocalSubject<M> = LibrarySubject<M, OnLocal<M>>;

impl<M: LocalStrategy> Default for LocalSubject<M> {
    fn default() -> Self {
        let clock = Arc::new(ManualClock::default());
        // Enough for all keys, in so few shards that keys share them.
        let limits = RateLimiter::builder().max_keys(40).clock(clock.clone()).build().unwrap();
        Self::new(clock, OnLocal { limits, strategy: std::marker::PhantomData })
    }
}

impl<M: LocalStrategy> Provides<M> for OnLocal<M> {
    type Receipt = LocalReceipt;
    type Verbs<'a>
        = &'a LocalLimiter<M::Strategy>
    where
        M: 'a;

    fn verbs(&self) -> &LocalLimiter<M::Strategy> {
        M::limiter(&self.limits)
    }

    fn forget_stale(&self) {
        self.limits.local().forget_stale(Duration::ZERO);
    }
}

fn absolute_limit(limit: &WindowLimit) -> (RateLimit, WindowSizeSeconds, RateGroupSizeMs) {
    (
        RateLimit::try_from(limit.rate).unwrap(),
        WindowSizeSeconds::try_from(limit.window_s).unwrap(),
        RateGroupSizeMs::try_from(limit.group_ms).unwrap(),
    )
}

impl LocalStrategy for AbsoluteModel {
    type Strategy = Absolute;

    fn limiter(limits: &RateLimiter) -> &LocalLimiter<Absolute> {
        limits.local().absolute()
    }

    fn limit(limit: &WindowLimit) -> AbsoluteLimit {
        let (rate, window, group) = absolute_limit(limit);
        AbsoluteLimit::new(rate, window, group)
    }

    fn detail(_: &Decision) -> Detail {
        Detail::Plain
    }
}

impl LocalStrategy for SuppressedModel {
    type Strategy = Suppressed;

    fn limiter(limits: &RateLimiter) -> &LocalLimiter<Suppressed> {
        limits.local().suppressed()
    }

    fn limit(limit: &SheddingLimit) -> SuppressedLimit {
        let (rate, window, group) = absolute_limit(&limit.soft);
        let factor = HardLimitFactor::try_from(limit.hard_limit_factor).unwrap();
        SuppressedLimit::new(rate, window, group, factor)
    }

    fn detail(decision: &SuppressedDecision) -> Detail {
        Detail::Suppressed { factor: decision.suppression_factor() }
    }
}

impl LocalStrategy for TokenBucketModel {
    type Strategy = TokenBucket;

    fn limiter(limits: &RateLimiter) -> &LocalLimiter<TokenBucket> {
        limits.local().token_bucket()
    }

    fn limit(limits: &Vec<Bucket>) -> TokenBucketLimits {
        let each = limits
            .iter()
            .map(|limit| TokenLimit::new(limit.capacity, Duration::from_micros(limit.refill_us)).unwrap());
        TokenBucketLimits::new(each).unwrap()
    }

    fn detail(decision: &TokenBucketDecision<'_>) -> Detail {
        Detail::Tokens {
            failed: decision.failed_limit(),
            balances: decision.balances().map(|balance| balance.remaining).collect(),
        }
    }
}

impl LocalStrategy for SlidingWindowModel {
    type Strategy = SlidingWindow;

    fn limiter(limits: &RateLimiter) -> &LocalLimiter<SlidingWindow> {
        limits.local().sliding_window()
    }

    fn limit(limit: &AlignedLimit) -> SlidingWindowLimit {
        SlidingWindowLimit::new(limit.limit, Duration::from_micros(limit.window_us)).unwrap()
    }

    fn detail(_: &Decision) -> Detail {
        Detail::Plain
    }
}

impl LocalStrategy for FixedWindowModel {
    type Strategy = FixedWindow;

    fn limiter(limits: &RateLimiter) -> &LocalLimiter<FixedWindow> {
        limits.local().fixed_window()
    }

    fn limit(limit: &AlignedLimit) -> FixedWindowLimit {
        FixedWindowLimit::new(limit.limit, Duration::from_micros(limit.window_us)).unwrap()
    }

    fn detail(_: &Decision) -> Detail {
        Detail::Plain
    }
}

impl LocalStrategy for CalendarModel {
    type Strategy = FixedWindow;

    fn limiter(limits: &RateLimiter) -> &LocalLimiter<FixedWindow> {
        limits.local().fixed_window()
    }

    fn limit(limit: &CalendarLimit) -> FixedWindowLimit {
        match limit.windows {
            ModelWindows::Aligned { window_us } => {
                FixedWindowLimit::new(limit.limit, Duration::from_micros(window_us)).unwrap()
            }
            ModelWindows::Calendar { zone, starts } => {
                FixedWindowLimit::calendar(limit.limit, CalendarWindow::new(zone, starts).unwrap()).unwrap()
            }
        }
    }

    fn detail(_: &Decision) -> Detail {
        Detail::Plain
    }
}

impl LocalStrategy for AbuseModel {
    type Strategy = Abuse;

    fn limiter(limits: &RateLimiter) -> &LocalLimiter<Abuse> {
        limits.local().abuse()
    }

    fn limit(limit: &AttemptLimit) -> AbuseLimit {
        let tier = |tier: Tier| {
            let window = Duration::from_micros(tier.window_us);
            AbuseTier::new(window, tier.threshold, Duration::from_micros(tier.block_us)).unwrap()
        };
        limit.while_blocked.apply(AbuseLimit::new(tier(limit.temp), tier(limit.long)))
    }

    fn detail(decision: &AbuseDecision) -> Detail {
        Detail::Abuse {
            scope: decision.scope(),
            short_count: decision.short_count(),
            long_count: decision.long_count(),
            block_us: micros(decision.block_ends_after()),
        }
    }
}

impl LocalStrategy for ConcurrencyModel {
    type Strategy = Concurrency;

    fn limiter(limits: &RateLimiter) -> &LocalLimiter<Concurrency> {
        limits.local().concurrency()
    }

    fn limit(limit: &HoldLimit) -> ConcurrencyLimit {
        ConcurrencyLimit::new(limit.limit, Duration::from_micros(limit.hold_us)).unwrap()
    }

    fn detail(_: &Decision) -> Detail {
        Detail::Plain
    }
}
