//! The strategies of the local provider, called as an application calls them.

use std::time::Duration;

use trypema::{
    AbsoluteLimit, FixedWindowLimit, LocalKeyHandle, RateLimit, RateLimiter, SlidingWindowLimit,
    TokenBucketLimits, TokenLimit,
};

use crate::contender::{Contender, Load};

const HOUR: Duration = Duration::from_secs(3_600);

fn limiter() -> RateLimiter {
    RateLimiter::builder().build().expect("valid options")
}

pub struct TokenBucket(RateLimiter, TokenBucketLimits);

impl TokenBucket {
    pub fn new(load: Load) -> Self {
        Self(limiter(), token_limits(load))
    }
}

fn token_limits(load: Load) -> TokenBucketLimits {
    let burst = u64::from(u32::MAX);
    let limit = match load {
        Load::Plenty => TokenLimit::new(burst, Duration::from_millis(burst)),
        Load::Scarce => TokenLimit::new(100, HOUR),
        Load::Idle => TokenLimit::new(1_000_000_000, Duration::from_secs(1)),
        Load::Near => TokenLimit::new(8, Duration::from_millis(125)),
        Load::Slow => TokenLimit::new(866_000, Duration::from_secs(31_609_000)),
    };
    limit.expect("a valid limit").into()
}

impl Contender for TokenBucket {
    #[inline]
    fn check(&self, key: &String) -> bool {
        self.0.local().token_bucket().take(key, &self.1, 1).is_allowed()
    }
}

/// Returns the limit of a window, and its length.
fn window_limit(load: Load) -> (u64, Duration) {
    let plenty = u64::from(u32::MAX);
    match load {
        Load::Plenty | Load::Slow => (plenty, HOUR),
        Load::Scarce => (100, HOUR),
        Load::Idle => (plenty, Duration::from_micros(10)),
        Load::Near => (8, Duration::from_millis(125)),
    }
}

pub struct SlidingWindow(RateLimiter, SlidingWindowLimit);

impl SlidingWindow {
    pub fn new(load: Load) -> Self {
        let (limit, window) = window_limit(load);
        Self(limiter(), SlidingWindowLimit::new(limit, window).expect("a valid limit"))
    }
}

impl Contender for SlidingWindow {
    #[inline]
    fn check(&self, key: &String) -> bool {
        self.0.local().sliding_window().take(key, &self.1, 1).is_allowed()
    }
}

pub struct FixedWindow(RateLimiter, FixedWindowLimit);

impl FixedWindow {
    pub fn new(load: Load) -> Self {
        let (limit, window) = window_limit(load);
        Self(limiter(), FixedWindowLimit::new(limit, window).expect("a valid limit"))
    }
}

impl Contender for FixedWindow {
    #[inline]
    fn check(&self, key: &String) -> bool {
        self.0.local().fixed_window().take(key, &self.1, 1).is_allowed()
    }
}

fn rate(load: Load) -> RateLimit {
    let per_second = match load {
        Load::Scarce => 0.2,
        Load::Near => 64.0,
        Load::Plenty | Load::Idle | Load::Slow => 1e8,
    };
    RateLimit::try_from(per_second).expect("a valid rate")
}

pub struct Absolute(RateLimiter, RateLimit);

impl Absolute {
    pub fn new(load: Load) -> Self {
        Self(limiter(), rate(load))
    }
}

impl Contender for Absolute {
    #[inline]
    fn check(&self, key: &String) -> bool {
        self.0.local().absolute().inc(key, &self.1, 1).is_allowed()
    }
}

/// Absolute, with a decision that computes the wait only if it is read, and a limit made once.
pub struct AbsoluteTake(RateLimiter, AbsoluteLimit);

impl AbsoluteTake {
    pub fn new(load: Load) -> Self {
        let limiter = limiter();
        let limit = match load {
            Load::Idle => {
                AbsoluteLimit::per_window(1 << 40, Duration::from_micros(10)).expect("a valid limit")
            }
            load => limiter.local().absolute().limit(&rate(load)),
        };
        Self(limiter, limit)
    }
}

impl Contender for AbsoluteTake {
    #[inline]
    fn check(&self, key: &String) -> bool {
        self.0.local().absolute().take(key, &self.1, 1).is_allowed()
    }
}

pub struct Suppressed(RateLimiter, RateLimit);

impl Suppressed {
    pub fn new(load: Load) -> Self {
        Self(limiter(), rate(load))
    }
}

impl Contender for Suppressed {
    #[inline]
    fn check(&self, key: &String) -> bool {
        self.0.local().suppressed().inc(key, &self.1, 1).is_allowed()
    }
}

/// A key handle. It borrows its limiter, so the limiter is leaked and lives as long as the process.
pub struct Handle(LocalKeyHandle<'static, trypema::strategy::TokenBucket>, TokenBucketLimits);

impl Handle {
    pub fn new(load: Load) -> Self {
        let limiter: &'static RateLimiter = Box::leak(Box::new(limiter()));
        Self(limiter.local().token_bucket().key("user:00000000000000"), token_limits(load))
    }
}

impl Contender for Handle {
    #[inline]
    fn check(&self, _: &String) -> bool {
        self.0.take(&self.1, 1).is_allowed()
    }
}
