//! The peers, each called as its documentation shows.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use limitador::limit::{Context, Limit, Namespace};
use published::RateLimiterBuilder as _;

use crate::contender::{Contender, Load};

pub struct Governor<S: std::hash::BuildHasher + Default + Clone + Send + Sync + 'static>(
    RateLimiter<String, DashMapStateStore<String, S>, DefaultClock>,
);

impl<S: std::hash::BuildHasher + Default + Clone + Send + Sync + 'static> Governor<S> {
    pub fn new(load: Load) -> Self {
        let number = |n| NonZeroU32::new(n).expect("not zero");
        let quota = match load {
            Load::Plenty => Quota::per_second(number(1_000)).allow_burst(number(u32::MAX)),
            Load::Scarce => Quota::per_hour(number(100)),
            Load::Idle => Quota::per_second(number(1_000_000_000)),
            Load::Near => Quota::per_second(number(64)).allow_burst(number(8)),
            Load::Slow => {
                let period = std::time::Duration::from_millis(36_500);
                Quota::with_period(period).expect("not zero").allow_burst(number(866_000))
            }
        };
        Self(RateLimiter::dashmap_with_clock_and_hasher(quota, DefaultClock::default(), S::default()))
    }
}

impl<S: std::hash::BuildHasher + Default + Clone + Send + Sync + 'static> Contender for Governor<S> {
    fn check(&self, key: &String) -> bool {
        self.0.check_key(key).is_ok()
    }
}

type Provider = Arc<published::local::LocalRateLimiterProvider>;

fn provider() -> Provider {
    published::local::LocalRateLimiterProvider::builder()
        .window_size(published::WindowSize::seconds_or_panic(60))
        .bucket_size(published::BucketSize::milliseconds_or_panic(10))
        .hard_limit_factor(published::HardLimitFactor::new_or_panic(2.0))
        .disable_cleanup()
        .build()
        .expect("valid options")
}

fn published_rate(load: Load) -> published::RateLimit {
    match load {
        Load::Plenty | Load::Idle | Load::Slow => published::RateLimit::per_second_or_panic(1e8),
        Load::Near => published::RateLimit::per_second_or_panic(64.0),
        Load::Scarce => published::RateLimit::per_second_or_panic(0.2),
    }
}

pub struct PublishedAbsolute(Provider, published::RateLimit);

impl PublishedAbsolute {
    pub fn new(load: Load) -> Self {
        Self(provider(), published_rate(load))
    }
}

impl Contender for PublishedAbsolute {
    fn check(&self, key: &String) -> bool {
        matches!(self.0.absolute().inc(key, &self.1, 1), published::RateLimitDecision::Allowed)
    }
}

pub struct PublishedSuppressed(Provider, published::RateLimit);

impl PublishedSuppressed {
    pub fn new(load: Load) -> Self {
        Self(provider(), published_rate(load))
    }
}

impl Contender for PublishedSuppressed {
    fn check(&self, key: &String) -> bool {
        matches!(self.0.suppressed().inc(key, &self.1, 1), published::RateLimitDecision::Allowed)
    }
}

pub struct ThrottleCrab(Mutex<throttlecrab::RateLimiter<throttlecrab::PeriodicStore>>, Load);

impl ThrottleCrab {
    pub fn new(load: Load) -> Self {
        Self(Mutex::new(throttlecrab::RateLimiter::new(throttlecrab::PeriodicStore::new())), load)
    }
}

impl Contender for ThrottleCrab {
    fn check(&self, key: &String) -> bool {
        let (burst, count, period) = match self.1 {
            Load::Plenty => (i64::from(u32::MAX), 1_000, 1),
            Load::Scarce => (100, 100, 3_600),
            Load::Idle => (1_000_000_000, 1_000_000_000, 1),
            Load::Near => (8, 64, 1),
            Load::Slow => (866_000, 2, 73),
        };
        let now = SystemTime::now();
        let answer = self.0.lock().expect("not poisoned").rate_limit(key, burst, count, period, 1, now);
        answer.expect("valid arguments").0
    }
}

pub struct Limitador(limitador::RateLimiter, Namespace);

impl Limitador {
    pub fn new(load: Load) -> Self {
        let limiter = limitador::RateLimiter::new(10_000_000);
        let (max, seconds) = match load {
            Load::Plenty | Load::Idle | Load::Slow => (u64::from(u32::MAX), 3_600),
            Load::Near => (64, 1),
            Load::Scarce => (100, 3_600),
        };
        let user = "user".try_into().expect("a valid expression");
        limiter.add_limit(Limit::new(
            "bench",
            max,
            seconds,
            Vec::<limitador::limit::Predicate>::new(),
            vec![user],
        ));
        Self(limiter, "bench".into())
    }
}

impl Contender for Limitador {
    fn check(&self, key: &String) -> bool {
        let values = std::collections::HashMap::from([("user".to_owned(), key.clone())]);
        let context: Context<'_> = values.into();
        let answer = self.0.check_rate_limited_and_update(&self.1, &context, 1);
        !answer.expect("a decision").limited
    }
}
