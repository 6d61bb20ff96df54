//! The examples for the Redis provider in the trypema 1.x documentation.

use std::sync::Arc;

use trypema::{RateLimit, RateLimitDecision, TrypemaError};
use trypema_testkit::blocking::wait_for;

use super::{Fixture, user_123, with_limiter};

#[test]
fn keys_are_checked_when_they_are_made() {
    {
        use trypema::redis::RedisKey;

        // Construction validates:
        // - not empty
        // - <= 255 bytes
        // - does not contain ':'
        let key = RedisKey::try_from("user_123".to_string()).unwrap();
        let _ = key;
    }
    use trypema::redis::RedisKey;

    // Valid
    let _ = RedisKey::try_from("user_123".to_string()).unwrap();
    let _ = RedisKey::try_from("api-endpoint-v2".to_string()).unwrap();

    // Invalid
    let invalid = RedisKey::try_from("user:123".to_string());
    assert!(invalid.is_err());
    let invalid = RedisKey::try_from("".to_string());
    assert!(invalid.is_err());
    let long_key = "x".repeat(256);
    let invalid = RedisKey::try_from(long_key);
    assert!(invalid.is_err());
}

/// An example that only has to compile: it leaves the connection to the reader.
mod inc {
    use trypema::local::LocalRateLimiterOptions;
    use trypema::redis::{RedisKey, RedisRateLimiterOptions};
    use trypema::{
        HardLimitFactor, RateGroupSizeMs, RateLimit, RateLimitDecision, RateLimiter, RateLimiterOptions,
        WindowSizeSeconds,
    };

    pub(super) async fn example() -> Result<(), trypema::TrypemaError> {
        let rl = RateLimiter::new(RateLimiterOptions {
            local: LocalRateLimiterOptions {
                window_size_seconds: WindowSizeSeconds::try_from(60).unwrap(),
                rate_group_size_ms: RateGroupSizeMs::try_from(10).unwrap(),
                hard_limit_factor: HardLimitFactor::default(),
            },
            redis: RedisRateLimiterOptions {
                connection_manager: todo!("create redis::aio::ConnectionManager"),
                prefix: None,
                window_size_seconds: WindowSizeSeconds::try_from(60).unwrap(),
                rate_group_size_ms: RateGroupSizeMs::try_from(10).unwrap(),
                hard_limit_factor: HardLimitFactor::default(),
            },
        });

        let limiter = rl.redis().absolute();
        let key = RedisKey::try_from("user_123".to_string())?;
        let rate = RateLimit::try_from(10.0)?;

        match limiter.inc(&key, &rate, 1).await? {
            RateLimitDecision::Allowed => {}
            RateLimitDecision::Rejected { retry_after_ms, .. } => {
                let _ = retry_after_ms;
            }
            _ => unreachable!(),
        }

        Ok(())
    }
}

#[test]
#[should_panic(expected = "create redis::aio::ConnectionManager")]
fn the_example_of_inc_is_complete_but_for_its_connection() {
    let _ = wait_for(inc::example());
}

mod is_allowed {
    use trypema::RateLimitDecision;

    pub(super) async fn check(
        limiter: &trypema::AbsoluteRedisRateLimiter,
        key: &trypema::RedisKey,
    ) -> Result<(), trypema::TrypemaError> {
        match limiter.is_allowed(key).await? {
            RateLimitDecision::Allowed => {}
            RateLimitDecision::Rejected { .. } => {}
            _ => unreachable!(),
        }
        Ok(())
    }
}

#[test]
fn asking_whether_one_is_allowed_records_nothing() {
    let fixture = Fixture::new();
    let rl = wait_for(fixture.limiter());
    wait_for(is_allowed::check(rl.redis().absolute(), &user_123())).unwrap();
    let name = format!("{}:{{user_123}}:absolute", fixture.prefix);
    let found = fixture.server.control().unwrap().command(&["EXISTS", &name]).unwrap().integer();
    assert_eq!(found, Some(0));
}

mod cleanup {
    pub(super) fn example() {
        use std::sync::Arc;

        use trypema::local::LocalRateLimiterOptions;
        use trypema::redis::RedisRateLimiterOptions;
        use trypema::{HardLimitFactor, RateGroupSizeMs, RateLimiter, RateLimiterOptions, WindowSizeSeconds};

        let rl = Arc::new(RateLimiter::new(RateLimiterOptions {
            local: LocalRateLimiterOptions {
                window_size_seconds: WindowSizeSeconds::try_from(60).unwrap(),
                rate_group_size_ms: RateGroupSizeMs::try_from(10).unwrap(),
                hard_limit_factor: HardLimitFactor::default(),
            },
            redis: RedisRateLimiterOptions {
                connection_manager: todo!("create redis::aio::ConnectionManager"),
                prefix: None,
                window_size_seconds: WindowSizeSeconds::try_from(60).unwrap(),
                rate_group_size_ms: RateGroupSizeMs::try_from(10).unwrap(),
                hard_limit_factor: HardLimitFactor::default(),
            },
        }));

        rl.run_cleanup_loop();
        rl.run_cleanup_loop_with_config(600_000, 30_000);
    }
}

#[test]
#[should_panic(expected = "create redis::aio::ConnectionManager")]
fn the_example_of_cleaning_is_complete_but_for_its_connection() {
    cleanup::example();
}

#[test]
fn the_cleanup_loop_starts_with_a_connection_too() {
    with_limiter(|rl| async move {
        rl.run_cleanup_loop();
        rl.run_cleanup_loop_with_config(600_000, 30_000);
        assert!(rl.redis().absolute().is_allowed(&user_123()).await.unwrap().is_allowed());
    });
}

/// The part of `log::warn!` that the example needs.
mod log {
    macro_rules! warning {
        ($($what:tt)*) => { eprintln!($($what)*) };
    }
    pub(super) use warning as warn;
}

async fn basic(limiter: &trypema::AbsoluteRedisRateLimiter) -> Result<RateLimitDecision, TrypemaError> {
    use trypema::{RateLimit, RateLimitDecision, RedisKey};

    let key = RedisKey::try_from("user_123".to_string())?;
    let rate = RateLimit::try_from(10.0)?; // 10 requests per second

    let decision = limiter.inc(&key, &rate, 1).await?;

    match decision {
        RateLimitDecision::Allowed => {
            // Process request
        }
        RateLimitDecision::Rejected { retry_after_ms, remaining_after_waiting, .. } => {
            // Send 429 Too Many Requests with Retry-After header
            log::warn!("Rate limit exceeded for {key}, retry in {retry_after_ms}ms");
        }
        _ => unreachable!("absolute strategy never returns Suppressed"),
    }
    Ok(decision)
}

#[test]
fn basic_rate_limiting_admits_the_window_and_not_one_more() {
    with_limiter(|rl| async move {
        let absolute = rl.redis().absolute();
        let rate = RateLimit::try_from(10.0).unwrap();
        assert!(absolute.inc(&user_123(), &rate, 599).await.unwrap().is_allowed());
        assert_eq!(basic(absolute).await, Ok(RateLimitDecision::Allowed));
        let Ok(RateLimitDecision::Rejected { window_size_seconds, retry_after_ms, .. }) =
            basic(absolute).await
        else {
            panic!("601 of 600");
        };
        assert_eq!(window_size_seconds, 60);
        assert!((1..=60_000).contains(&retry_after_ms), "{retry_after_ms}");
    });
}

async fn read_only_check(
    limiter: &trypema::AbsoluteRedisRateLimiter,
    key: trypema::RedisKey,
    rate: RateLimit,
) -> Result<u32, TrypemaError> {
    async fn expensive_operation() -> Result<u32, TrypemaError> {
        Ok(7)
    }

    // Check if request would be allowed without recording it
    let decision = limiter.is_allowed(&key).await?;

    if matches!(decision, RateLimitDecision::Allowed) {
        // Do expensive work, then record
        let result = expensive_operation().await;
        limiter.inc(&key, &rate, 1).await?;
        return result;
    }
    Ok(0)
}

#[test]
fn a_read_only_check_lets_work_through_until_the_window_is_full() {
    with_limiter(|rl| async move {
        let absolute = rl.redis().absolute();
        let rate = RateLimit::try_from(0.05).unwrap(); // 3 a minute
        for expected in [7, 7, 7, 0] {
            assert_eq!(read_only_check(absolute, user_123(), rate).await, Ok(expected));
        }
    });
}

mod middleware {
    use std::sync::Arc;

    use trypema::redis::RedisKey;
    use trypema::{AbsoluteRedisRateLimiter, RateLimit, RateLimitDecision};

    pub(super) struct Request;
    pub(super) struct Response;

    #[derive(Debug)]
    pub(super) struct Error;

    fn extract_user_id(_req: &Request) -> Result<String, Error> {
        Ok("user_123".to_string())
    }

    async fn handle_request(_req: Request) -> Result<Response, Error> {
        Ok(Response)
    }

    pub(super) async fn rate_limit_middleware(
        req: Request,
        limiter: Arc<AbsoluteRedisRateLimiter>,
    ) -> Result<Response, Error> {
        let user_id = extract_user_id(&req)?;
        let key = RedisKey::try_from(format!("api_{}", user_id)).map_err(|_| Error)?;
        let rate = RateLimit::try_from(100.0).map_err(|_| Error)?;

        match limiter.inc(&key, &rate, 1).await.map_err(|_| Error)? {
            RateLimitDecision::Allowed => handle_request(req).await,
            RateLimitDecision::Rejected { retry_after_ms, remaining_after_waiting, .. } => {
                let _ = (retry_after_ms, remaining_after_waiting);
                Err(Error)
            }
            _ => unreachable!(),
        }
    }
}

/// The example only has to compile: no function of the library returns an `Arc` of a single limiter.
#[test]
fn the_middleware_is_a_function_of_a_request_and_a_limiter() {
    let middleware = |limiter| middleware::rate_limit_middleware(middleware::Request, limiter);
    let _: &dyn Fn(Arc<trypema::AbsoluteRedisRateLimiter>) -> _ = &middleware;
}

mod tiers {
    use trypema::redis::RedisKey;
    use trypema::{AbsoluteRedisRateLimiter, RateLimit, RateLimitDecision, TrypemaError};

    pub(super) enum UserTier {
        Free,
        Pro,
        Enterprise,
    }

    pub(super) async fn check_user_rate_limit(
        user_id: &str,
        user_tier: UserTier,
        limiter: &AbsoluteRedisRateLimiter,
    ) -> Result<RateLimitDecision, TrypemaError> {
        let key = RedisKey::try_from(format!("user_{}", user_id))?;

        let rate = match user_tier {
            UserTier::Free => RateLimit::try_from(10.0)?,
            UserTier::Pro => RateLimit::try_from(100.0)?,
            UserTier::Enterprise => RateLimit::try_from(1000.0)?,
        };

        limiter.inc(&key, &rate, 1).await
    }
}

#[test]
fn users_of_every_tier_are_let_in() {
    use tiers::UserTier::{Enterprise, Free, Pro};
    with_limiter(|rl| async move {
        for (user, tier) in [("ann", Free), ("bob", Pro), ("eve", Enterprise)] {
            let decision = tiers::check_user_rate_limit(user, tier, rl.redis().absolute()).await;
            assert_eq!(decision, Ok(RateLimitDecision::Allowed));
        }
    });
}
