//! The examples of the trypema 1.x README.

use std::sync::Arc;

use trypema::{RateLimitDecision, RateLimiter, RedisKey};
use trypema_testkit::blocking::wait_for;

use super::{Fixture, redis, user_123};

/// The quick start of the Redis provider.
mod quick_start {
    /// A stand-in for the client that connects every address to the test's server.
    mod redis {
        use std::sync::OnceLock;

        pub(crate) static URL: OnceLock<String> = OnceLock::new();

        pub(super) struct Client;

        impl Client {
            pub(super) fn open(_: &str) -> crate::compat::redis::RedisResult<crate::compat::redis::Client> {
                crate::compat::redis::Client::open(URL.get().unwrap().as_str())
            }
        }
    }
    pub(super) use redis::URL;

    use std::sync::Arc;
    use trypema::{
        HardLimitFactor, LocalRateLimiterOptions, RateGroupSizeMs, RateLimit, RateLimiter,
        RateLimiterOptions, RedisKey, RedisRateLimiterOptions, WindowSizeSeconds,
    };

    #[tokio::main]
    pub(super) async fn main() {
        // Connect to Redis
        let client = redis::Client::open("redis://127.0.0.1:6379/").unwrap();
        let connection_manager = client.get_connection_manager().await.unwrap();

        // Create rate limiter with both local and Redis providers
        let rl = Arc::new(RateLimiter::new(RateLimiterOptions {
            local: LocalRateLimiterOptions {
                window_size_seconds: WindowSizeSeconds::try_from(60).unwrap(),
                rate_group_size_ms: RateGroupSizeMs::try_from(10).unwrap(),
                hard_limit_factor: HardLimitFactor::default(),
            },
            redis: RedisRateLimiterOptions {
                connection_manager,
                prefix: None, // Optional: prefix all Redis keys with "myapp"
                window_size_seconds: WindowSizeSeconds::try_from(60).unwrap(),
                rate_group_size_ms: RateGroupSizeMs::try_from(10).unwrap(),
                hard_limit_factor: HardLimitFactor::default(),
            },
        }));

        // Optional: Start background cleanup
        rl.run_cleanup_loop();

        let rate_limit = RateLimit::try_from(5.0).unwrap();

        // Redis keys must not contain ':' (used internally as separator)
        let key = RedisKey::try_from("user_123".to_string()).unwrap();

        match rl.redis().absolute().inc(&key, &rate_limit, 1).await {
            Ok(decision) => {
                // Handle decision
            }
            Err(e) => {
                // Handle Redis errors
            }
        }
    }
}

#[test]
fn the_quick_start_admits_and_its_key_is_named_after_the_default_prefix() {
    let fixture = Fixture::new();
    let mut control = fixture.server.control().unwrap();
    quick_start::URL.set(fixture.server.url().to_owned()).unwrap();
    quick_start::main();
    let ttl_ms = control.command(&["PTTL", "trypema:{user_123}:absolute"]).unwrap().integer().unwrap();
    assert!((1..=60_000).contains(&ttl_ms), "{ttl_ms}");
}

#[test]
fn the_decisions_are_written_as_documented() {
    let allowed = RateLimitDecision::Allowed;
    let rejected = RateLimitDecision::Rejected {
        window_size_seconds: 60,
        retry_after_ms: 2500,        // Backoff hint: retry in ~2.5 seconds
        remaining_after_waiting: 45, // Estimated remaining count after waiting
    };
    let suppressed = RateLimitDecision::Suppressed {
        suppression_factor: 0.3, // 30% suppression rate
        is_allowed: true,        // This specific call was allowed
    };
    assert_eq!([allowed, rejected, suppressed].map(|decision| decision.is_allowed()), [true, false, true]);
}

#[test]
fn the_cleanup_loop_starts_and_ends_with_the_limiter() {
    let fixture = Fixture::new();
    let options = wait_for(fixture.options());

    let rl = Arc::new(RateLimiter::new(options));
    rl.run_cleanup_loop(); // Default: removes keys inactive for 10 minutes, checks every 30 seconds

    let weak = Arc::downgrade(&rl);
    drop(rl);
    assert!(weak.upgrade().is_none(), "the loop holds a weak reference only");
}

#[test]
fn keys_are_checked_as_documented() {
    // ✅ Valid
    RedisKey::try_from("user_123".to_string()).unwrap();
    RedisKey::try_from("api_v2_endpoint".to_string()).unwrap();

    // ❌ Invalid
    assert!(RedisKey::try_from("user:123".to_string()).is_err()); // Error: contains ':'
    assert!(RedisKey::try_from("".to_string()).is_err()); // Error: empty
}

#[test]
fn both_import_paths_name_the_same_types() {
    let fixture = Fixture::new();
    let options: trypema::redis::RedisRateLimiterOptions = wait_for(fixture.options()).redis;
    let manager: redis::aio::ConnectionManager = options.connection_manager.clone();
    let _: trypema::RedisRateLimiterOptions = options;
    let rl = RateLimiter::new(wait_for(fixture.options()));
    let provider: &trypema::redis::RedisRateLimiterProvider = rl.redis();
    let _: &trypema::RedisRateLimiterProvider = provider;
    let absolute: &trypema::redis::AbsoluteRedisRateLimiter = provider.absolute();
    let _: &trypema::AbsoluteRedisRateLimiter = absolute;
    let suppressed: &trypema::redis::SuppressedRedisRateLimiter = provider.suppressed();
    let _: &trypema::SuppressedRedisRateLimiter = suppressed;
    let key: trypema::redis::RedisKey = user_123();
    assert_eq!(key.to_string(), "user_123");
}
