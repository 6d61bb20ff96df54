//! trypema 2.2.1, called as its documentation shows, on a connection with `TCP_NODELAY`.

use std::sync::Arc;

use published::hybrid::HybridRateLimiterProvider;
use published::redis::{ConnectionManager, RedisKey, RedisRateLimiterProvider};
use published::{BucketSize, HardLimitFactor, RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize};

use super::contender::{Contender, EXACTLY, Load};
use super::floors;

async fn manager(url: &str) -> ConnectionManager {
    floors::client(url).get_connection_manager().await.expect("a connection")
}

fn built<B: RateLimiterBuilder>(builder: B, load: Load) -> Arc<B::Provider> {
    let (window, bucket) = match load {
        Load::Expiring => (1, 1),
        _ => (3_600, 10),
    };
    builder
        .window_size(WindowSize::seconds_or_panic(window))
        .bucket_size(BucketSize::milliseconds_or_panic(bucket))
        .hard_limit_factor(HardLimitFactor::new_or_panic(2.0))
        .disable_cleanup()
        .build()
        .expect("valid options")
}

fn rate(load: Load) -> RateLimit {
    match load {
        Load::Plenty | Load::Young | Load::Expiring => RateLimit::per_second_or_panic(1e8),
        Load::Scarce => RateLimit::per_second_or_panic(100.0 / 3_600.0),
        Load::Counted => RateLimit::per_second_or_panic(EXACTLY as f64 / 3_600.0),
    }
}

fn key(name: &str) -> RedisKey {
    RedisKey::new_or_panic(name.to_owned())
}

fn is_allowed(answer: Result<RateLimitDecision, published::TrypemaError>) -> Result<bool, String> {
    match answer.map_err(|error| error.to_string())? {
        RateLimitDecision::Allowed => Ok(true),
        RateLimitDecision::Suppressed { is_allowed, .. } => Ok(is_allowed),
        _ => Ok(false),
    }
}

pub struct Absolute(Arc<RedisRateLimiterProvider>, RateLimit);

impl Absolute {
    pub async fn new(url: &str, load: Load) -> Self {
        Self(built(RedisRateLimiterProvider::builder(manager(url).await), load), rate(load))
    }
}

impl Contender for Absolute {
    type Key = RedisKey;

    fn key(name: &str) -> RedisKey {
        key(name)
    }

    async fn check(&self, key: &RedisKey) -> Result<bool, String> {
        is_allowed(self.0.absolute().inc(key, &self.1, 1).await)
    }
}

pub struct Suppressed(Arc<RedisRateLimiterProvider>, RateLimit);

impl Suppressed {
    pub async fn new(url: &str, load: Load) -> Self {
        Self(built(RedisRateLimiterProvider::builder(manager(url).await), load), rate(load))
    }
}

impl Contender for Suppressed {
    type Key = RedisKey;

    fn key(name: &str) -> RedisKey {
        key(name)
    }

    async fn check(&self, key: &RedisKey) -> Result<bool, String> {
        is_allowed(self.0.suppressed().inc(key, &self.1, 1).await)
    }
}

pub struct Hybrid(Arc<HybridRateLimiterProvider>, RateLimit);

impl Hybrid {
    pub async fn new(url: &str, load: Load) -> Self {
        // By default it shares its keys with the absolute strategy of trypema 2.2.1. A prefix keeps the two
        // apart.
        let builder = HybridRateLimiterProvider::builder(manager(url).await).prefix(key("hybrid"));
        Self(built(builder, load), rate(load))
    }
}

impl Contender for Hybrid {
    type Key = RedisKey;

    fn key(name: &str) -> RedisKey {
        key(name)
    }

    async fn check(&self, key: &RedisKey) -> Result<bool, String> {
        is_allowed(self.0.absolute().inc(key, &self.1, 1).await)
    }
}
