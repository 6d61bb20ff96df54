//! Every example of the trypema 1.x documentation that compiles with the Redis provider, unchanged.
//!
//! Names that the documentation leaves undeclared (`limiter`, `metrics`, `expensive_operation` …) are
//! declared around each example. `redis` is the re-exported client. Examples that can run do so on a real
//! server. `compat.rs` has the one that compiles only without the Redis features.
#![cfg(feature = "redis-tokio")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::todo,
    clippy::diverging_sub_expression,
    clippy::disallowed_methods,
    clippy::needless_return,
    clippy::single_component_path_imports,
    clippy::single_match,
    unreachable_code,
    unused_variables,
    reason = "examples are kept as they were published"
)]

#[cfg(feature = "http")]
mod abuse;
mod monitoring;
mod provider;
mod readme;

use std::sync::Arc;
use std::time::Duration;

use trypema::redis::client as redis;
use trypema::{
    HardLimitFactor, LocalRateLimiterOptions, RateGroupSizeMs, RateLimiter, RateLimiterOptions, RedisKey,
    RedisRateLimiterOptions, WindowSizeSeconds,
};
use trypema_testkit::blocking::wait_for;
use trypema_testkit::redis::{Server, Shared};

/// A server, and a prefix that no other test uses.
struct Fixture {
    server: Shared,
    prefix: RedisKey,
}

impl Fixture {
    fn new() -> Self {
        let server = Server::shared().unwrap();
        let prefix = RedisKey::try_from(server.unique_prefix()).unwrap();
        Self { server, prefix }
    }

    async fn manager(&self) -> redis::aio::ConnectionManager {
        redis::Client::open(self.server.url()).unwrap().get_connection_manager().await.unwrap()
    }

    /// The options of the documentation: windows of 60 s, groups of 10 ms.
    async fn options(&self) -> RateLimiterOptions {
        RateLimiterOptions {
            local: LocalRateLimiterOptions {
                window_size_seconds: WindowSizeSeconds::try_from(60).unwrap(),
                rate_group_size_ms: RateGroupSizeMs::try_from(10).unwrap(),
                hard_limit_factor: HardLimitFactor::default(),
            },
            redis: RedisRateLimiterOptions {
                connection_manager: self.manager().await,
                prefix: Some(self.prefix.clone()),
                window_size_seconds: WindowSizeSeconds::try_from(60).unwrap(),
                rate_group_size_ms: RateGroupSizeMs::try_from(10).unwrap(),
                hard_limit_factor: HardLimitFactor::default(),
            },
        }
    }

    /// A limiter with the documentation's options, and a deadline that a busy machine does not miss.
    async fn limiter(&self) -> RateLimiter {
        let builder = RateLimiter::builder().redis(self.manager().await).redis_prefix(self.prefix.clone());
        builder.redis_deadline(Duration::from_secs(20)).build().unwrap()
    }
}

/// Runs `test` with a limiter that has the documentation's options, on a real server.
fn with_limiter<F: Future>(test: impl FnOnce(Arc<RateLimiter>) -> F) -> F::Output {
    let fixture = Fixture::new();
    wait_for(async { test(Arc::new(fixture.limiter().await)).await })
}

fn user_123() -> RedisKey {
    RedisKey::try_from("user_123".to_string()).unwrap()
}
