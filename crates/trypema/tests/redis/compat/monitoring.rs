//! The examples for monitoring in the trypema 1.x documentation.

use std::cell::RefCell;

use trypema::redis::RedisConnection;
use trypema::{AbsoluteRedisRateLimiter, RateLimit, RateLimitDecision, RateLimiter, RedisKey, TrypemaError};
use trypema_testkit::blocking::wait_for;

use super::{user_123, with_limiter};

/// A stand-in for the reader's metrics that records the counted names.
#[derive(Default)]
struct Metrics(RefCell<Vec<&'static str>>);

impl Metrics {
    fn increment(&self, name: &'static str) {
        self.0.borrow_mut().push(name);
    }

    fn histogram(&self, name: &'static str, _value: u128) {
        self.0.borrow_mut().push(name);
    }
}

/// The same with tags.
struct TaggedMetrics<'a>(&'a Metrics);

impl TaggedMetrics<'_> {
    fn increment(&self, name: &'static str, _tags: &[(&str, &str)]) {
        self.0.increment(name);
    }
}

/// The example logs everything that its process does from then on.
#[cfg(feature = "tracing")]
#[test]
fn operations_are_logged() {
    trypema_testkit::own_process::in_own_process("compat::monitoring::operations_are_logged", log);
}

#[cfg(feature = "tracing")]
fn log() {
    use tracing_subscriber;

    tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).init();

    tracing::debug!("a line of the log");
}

fn count(decision: RateLimitDecision, metrics: &TaggedMetrics<'_>, tags: &[(&str, &str)]) {
    use trypema::RateLimitDecision;

    match decision {
        RateLimitDecision::Rejected { .. } => {
            metrics.increment("rate_limit.rejected", tags);
        }
        RateLimitDecision::Allowed => {
            metrics.increment("rate_limit.allowed", tags);
        }
        _ => {}
    }
}

async fn time(
    limiter: &AbsoluteRedisRateLimiter,
    metrics: &Metrics,
    (key, rate): (RedisKey, RateLimit),
) -> Result<(), TrypemaError> {
    use std::time::Instant;

    let start = Instant::now();
    let decision = limiter.inc(&key, &rate, 1).await?;
    metrics.histogram("rate_limit.redis.latency_ms", start.elapsed().as_millis());
    let _ = decision;
    Ok(())
}

async fn count_errors(
    limiter: &AbsoluteRedisRateLimiter,
    metrics: &Metrics,
    (key, rate): (RedisKey, RateLimit),
) {
    use trypema::TrypemaError;

    match limiter.inc(&key, &rate, 1).await {
        Err(TrypemaError::RedisError(_)) => {
            metrics.increment("rate_limit.redis.errors");
        }
        _ => {}
    }
}

fn once_a_minute() -> (RedisKey, RateLimit) {
    (user_123(), RateLimit::try_from(1.0 / 60.0).unwrap())
}

#[test]
fn decisions_and_latencies_are_counted() {
    let metrics = Metrics::default();
    with_limiter(|rl| {
        let metrics = &metrics;
        async move {
            let absolute = rl.redis().absolute();
            let (key, rate) = once_a_minute();
            for _ in 0..2 {
                let decision = absolute.inc(&key, &rate, 1).await.unwrap();
                count(decision, &TaggedMetrics(metrics), &[("key", "user_123")]);
            }
            time(absolute, metrics, once_a_minute()).await.unwrap();
            count_errors(absolute, metrics, once_a_minute()).await;
        }
    });
    let counted = ["rate_limit.allowed", "rate_limit.rejected", "rate_limit.redis.latency_ms"];
    assert_eq!(*metrics.0.borrow(), counted);
}

#[test]
fn a_server_that_is_not_there_is_counted_as_an_error() {
    let metrics = Metrics::default();
    // No server listens on port 1 of this machine.
    let connection = RedisConnection::lazy("redis://127.0.0.1:1").unwrap();
    let rl = RateLimiter::builder().redis(connection).build().unwrap();
    wait_for(count_errors(rl.redis().absolute(), &metrics, once_a_minute()));
    assert_eq!(*metrics.0.borrow(), ["rate_limit.redis.errors"]);
}
